/* ops/tokens/gather.h - checks the arguments of gather, for the CPU and for a GPU. */
#ifndef NAPIER_OPS_TOKENS_GATHER_H
#define NAPIER_OPS_TOKENS_GATHER_H

#include "ops/tokens/responses.h"

/* backward: the gradients of both. */
napier_status napier_gather_check(napier_context *context, napier_place place, napier_const_matrix logprobs,
                                  napier_indices ids, napier_const_vector gathered, bool backward);

#endif
