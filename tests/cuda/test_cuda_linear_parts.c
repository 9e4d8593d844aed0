/* tests/cuda/test_cuda_linear_parts.c - test_cuda_linear_tokens.c again, with workspaces so small that 128 rows go at a
 * time. */
#define NAPIER_TEST_SMALL_PARTS
/* in place of the library's */
#include "ops/head/gpu/linear_bitwise_cuda.c"
#include "ops/head/gpu/linear_token_cuda.c"

#include "test_cuda_linear_tokens.c"
