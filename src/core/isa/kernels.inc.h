/* core/isa/kernels.inc.h - every kernel of every room, compiled for the instruction set that the including file has
 * chosen. */
#include "core/math/math.inc.h"
#include "ops/softmax/softmax.inc.h"
#include "ops/softmax/short_rows.inc.h"
#include "ops/softmax/long_rows.inc.h"
#include "ops/softmax/lanes.inc.h"
#include "ops/softmax/weighted.inc.h"
#include "ops/softmax/gradient.inc.h"
#include "ops/linear/matmul.inc.h"
#include "ops/attention/attention.inc.h"
#include "lm/decoder/model.inc.h"
#include "ops/tokens/rl.inc.h"
#include "umap/layout/layout.inc.h"
#include "umap/metric/distance.inc.h"

#include "core/isa/kernels.h"

#define NAPIER_KERNELS                                                                                \
    {                                                                                                 \
        NAPIER_MATH_KERNELS, NAPIER_SOFTMAX_KERNELS, NAPIER_LINEAR_KERNELS, NAPIER_ATTENTION_KERNELS, \
            NAPIER_RL_KERNELS, NAPIER_UMAP_KERNELS, NAPIER_DISTANCE_KERNELS, NAPIER_MODEL_KERNELS     \
    }
