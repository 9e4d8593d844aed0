/* ops/tokens/token_kernels.inc.h - the table of every kernel of tokens, for the instruction set
 * that the including file has chosen. */
#if defined(NAPIER_TABLE)
#include "ops/tokens/token_gradient.inc.h"

const napier_token_kernels NAPIER_TABLE(napier_token_kernels) = {.token_z = napier_token_z,
                                                                 .token_tile = napier_token_tile,
                                                                 .token_finish = napier_token_finish,
                                                                 .token_range = napier_token_range,
                                                                 .token_rows = napier_token_rows,
                                                                 .token_gradient = napier_token_gradient};
#endif
