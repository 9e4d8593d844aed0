/* ops/attention/attention_kernels.inc.h - the table of every kernel of attention, for the instruction set
 * that the including file has chosen. */
#if defined(NAPIER_TABLE)
#include "ops/attention/attention.inc.h"

const napier_attention_kernels NAPIER_TABLE(napier_attention_kernels) = {
    .weigh = napier_attention_weigh,
    .finish = napier_attention_finish,
    .few_values = napier_attention_few_values,
    .few_value_pairs = napier_attention_few_value_pairs,
    .slope = napier_attention_slope,
    .slope_pairs = napier_attention_slope_pairs,
    .turned = napier_attention_turned,
    .scale = napier_attention_scale,
    .any_special = napier_attention_any_special};
#endif
