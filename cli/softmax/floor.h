/* cli/softmax/floor.h - what the hardware allows: how fast memory is copied and read, and how fast exp can be summed.
 * Written without the library, so that the library can be measured against it. */
#ifndef NAPIER_CLI_FLOOR_H
#define NAPIER_CLI_FLOOR_H

#include <napier/types.h>

/* One copy of `bytes` bytes by `threads` threads: memcpy, or stores that go past the caches (where there are such). */
void floor_copy(void *to, const void *from, size_t bytes, int threads);
void floor_copy_past_caches(void *to, const void *from, size_t bytes, int threads);

/* Reads `bytes` bytes, a multiple of 64, once by `threads` threads with the instruction set's vectors. The result is there so that the reads are. */
uint64_t floor_read(napier_isa isa, const void *from, size_t bytes, int threads);

/* The sum of exp(x[i]) over n floats in [-80, 0], a multiple of 16, with the instruction set's vectors: a reduction to
 * [-ln2/2, ln2/2] and a polynomial of degree 6, which is what an exp to one unit in the last place takes. */
float floor_exp_sum(napier_isa isa, const float *x, int64_t n);

/* Bytes of the second level cache of one core. */
int64_t floor_cache_size(void);

#endif
