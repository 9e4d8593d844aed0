/* cli/softmax/floor.h - the limits of the hardware: the speed of copying memory, reading it, and summing exp. It uses
 * only the threads of the library, so that the library can be measured against it. */
#ifndef NAPIER_CLI_FLOOR_H
#define NAPIER_CLI_FLOOR_H

#include <napier/types.h>

#include "core/base/pool.h"

/* Copies `bytes` bytes once with `threads` threads of the pool, by memcpy or, where possible, by stores that bypass the caches. */
void floor_copy(void *to, const void *from, size_t bytes, napier_pool *pool, int threads);
void floor_copy_past_caches(void *to, const void *from, size_t bytes, napier_pool *pool, int threads);

/* Reads `bytes` bytes, a multiple of 64, once with `threads` threads and the instruction set's vectors. It returns a
 * result so that the compiler keeps the reads. */
uint64_t floor_read(napier_isa isa, const void *from, size_t bytes, napier_pool *pool, int threads);

/* The sum of exp(x[i]) over n floats in [-80, 0], a multiple of 64, with the instruction set's vectors: a reduction to
 * [-ln2/2, ln2/2] and a polynomial of degree 6, the work needed for an exp accurate to one unit in the last place. */
float floor_exp_sum(napier_isa isa, const float *x, int64_t n);

/* The bytes of one core's second level cache. */
int64_t floor_cache_size(void);

#endif
