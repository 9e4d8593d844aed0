/* ops/attention/attention_few.h - the forward for one query a sequence: a decode step. */
#ifndef NAPIER_OPS_ATTENTION_ATTENTION_FEW_H
#define NAPIER_OPS_ATTENTION_ATTENTION_FEW_H

#include "ops/attention/attention_plan.h"

/* True if no sequence has more than one query, and it is faster to read their keys in place than to pack them. */
bool napier_attention_is_few(const napier_attention_plan *plan, const napier_heads *output);
/* masked: the factor of rows without keys. */
napier_status napier_attention_few(napier_context *context, const napier_attention_plan *plan, napier_heads output,
                                   napier_matrix lse, float masked);

#endif
