/* isa/kernels.inc.h - every kernel of every room, compiled for the instruction set that the including file has chosen. */
#include "math/math.inc.h"
#include "softmax/softmax.inc.h"
#include "softmax/short_rows.inc.h"
#include "softmax/long_rows.inc.h"
#include "softmax/lanes.inc.h"
#include "softmax/weighted.inc.h"
#include "softmax/gradient.inc.h"
#include "linear/matmul.inc.h"
#include "attention/attention.inc.h"
#include "model/model.inc.h"
#include "rl/rl.inc.h"
#include "umap/layout.inc.h"
#include "umap/distance.inc.h"

#include "isa/kernels.h"

#define NAPIER_KERNELS                                                                                \
    {                                                                                                 \
        NAPIER_MATH_KERNELS, NAPIER_SOFTMAX_KERNELS, NAPIER_LINEAR_KERNELS, NAPIER_ATTENTION_KERNELS, \
            NAPIER_RL_KERNELS, NAPIER_UMAP_KERNELS, NAPIER_DISTANCE_KERNELS, NAPIER_MODEL_KERNELS     \
    }
