/* ops/isa/ops_kernels.inc.h - every kernel of this part, compiled for the instruction set that the including file has
 * chosen, and the table of them. */
#include "ops/isa/ops_kernels.h"
#include "core/math/lanes_math.h"
#include "ops/softmax/softmax.inc.h"
#include "ops/softmax/short_rows.inc.h"
#include "ops/softmax/long_rows.inc.h"
#include "ops/softmax/lanes.inc.h"
#include "ops/softmax/columns.inc.h"
#include "ops/softmax/weighted.inc.h"
#include "ops/softmax/f64/tile_f64.inc.h"
#include "ops/softmax/gradient.inc.h"
#include "ops/sparsemax/sparsemax.inc.h"
#include "ops/linear/matmul.inc.h"
#include "ops/attention/attention.inc.h"
#include "ops/layers/layers.inc.h"
#include "ops/tokens/responses.inc.h"
#include "ops/tokens/token_tile.inc.h"
#include "ops/tokens/token_rows.inc.h"
#include "ops/tokens/token_gradient.inc.h"
#include "ops/sample/sample.inc.h"
#include "ops/losses/kl.inc.h"
#include "ops/losses/rubric.inc.h"
#include "ops/losses/grpo.inc.h"

#define NAPIER_OPS_KERNELS(isa)                                                                                    \
    {                                                                                                              \
        .softmax = NAPIER_SOFTMAX_KERNELS, .linear = NAPIER_LINEAR_KERNELS, .attention = NAPIER_ATTENTION_KERNELS, \
        .tokens = NAPIER_TOKEN_KERNELS, .kl = NAPIER_KL_KERNELS, .rubric = NAPIER_RUBRIC_KERNELS,                  \
        .grpo = NAPIER_GRPO_KERNELS, .sparsemax = NAPIER_SPARSEMAX_KERNELS, .sample = NAPIER_SAMPLE_KERNELS,       \
        .layers = NAPIER_LAYER_KERNELS                                                                             \
    }
