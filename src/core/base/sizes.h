/* core/base/sizes.h - arithmetic on sizes. */
#ifndef NAPIER_CORE_BASE_SIZES_H
#define NAPIER_CORE_BASE_SIZES_H

#include <stdint.h>

static inline int64_t napier_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* n rounded up to a multiple. */
static inline int64_t napier_round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

#endif
