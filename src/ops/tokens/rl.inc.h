/* ops/tokens/rl.inc.h - the kernels of the rl room. Included after the softmax room's, once per instruction set. */
#include "ops/tokens/responses.inc.h"
#include "ops/losses/kl.inc.h"
#include "ops/losses/rubric.inc.h"
#include "ops/losses/grpo.inc.h"
#include "ops/tokens/token_tile.inc.h"
#include "ops/tokens/token_rows.inc.h"
#include "ops/tokens/token_gradient.inc.h"

#define NAPIER_RL_KERNELS                                                                                 \
    {                                                                                                     \
        NAPIER_KL_KERNELS, NAPIER_RUBRIC_KERNELS, NAPIER_GRPO_KERNELS, napier_token_z, napier_token_tile, \
            napier_token_finish, napier_token_range, napier_token_rows, napier_token_gradient             \
    }
