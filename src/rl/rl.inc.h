/* rl/rl.inc.h - the kernels of the rl room. Included after the softmax room's, once per instruction set. */
#include "rl/responses.inc.h"
#include "rl/kl.inc.h"
#include "rl/rubric.inc.h"
#include "rl/grpo.inc.h"
#include "rl/token_tile.inc.h"
#include "rl/token_rows.inc.h"
#include "rl/token_gradient.inc.h"

#define NAPIER_RL_KERNELS                                                                                 \
    {                                                                                                     \
        NAPIER_KL_KERNELS, NAPIER_RUBRIC_KERNELS, NAPIER_GRPO_KERNELS, napier_token_z, napier_token_tile, \
            napier_token_finish, napier_token_range, napier_token_rows, napier_token_gradient             \
    }
