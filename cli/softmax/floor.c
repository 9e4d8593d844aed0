/* cli/softmax/floor.c - the limits of the hardware. */
#define _POSIX_C_SOURCE 200809L

#include "floor.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { LINE = 64, LANES = 64 };

/* ---- Shares of the threads --------------------------------------------------------------------------------------- */

typedef struct shares {
    void (*take)(struct shares *s, size_t start, size_t bytes);
    void (*copy)(char *to, const char *from, size_t bytes);
    uint64_t (*read)(const uint64_t *from, size_t words);
    char *to;
    const char *from;
    size_t bytes;
    int count;
    _Atomic int next;
    _Atomic uint64_t sum; /* of the words that were read */
} shares;

/* In whole cache lines. */
static size_t share_start(const shares *s, int k) {
    return k == s->count ? s->bytes : s->bytes / LINE * (size_t)k / (size_t)s->count * LINE;
}

static void take_shares(void *argument, int worker) {
    shares *const s = argument;
    (void)worker;
    for (int k = s->next++; k < s->count; k = s->next++) {
        const size_t start = share_start(s, k);
        s->take(s, start, share_start(s, k + 1) - start);
    }
}

/* A thread finishes a share below 64 KB before another thread has woken up. */
static void run_shares(shares *s, napier_pool *pool, int threads) {
    const size_t most = s->bytes / (64 * 1024) + 1;
    s->count = most < (size_t)threads ? (int)most : threads;
    napier_pool_run(pool, s->count, take_shares, NULL, s);
}

/* ---- Copying and reading ------------------------------------------------------------------------------------------ */

#if defined(__SSE2__)
/* `to` is aligned to a cache line, and so is every share except the end of the last. */
static void copy_past_caches(char *to, const char *from, size_t bytes) {
    const size_t lines = bytes / LINE;
    for (size_t i = 0; i < lines; i++) {
        for (size_t part = 0; part < LINE; part += sizeof(__m128i)) {
            const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(from + i * LINE + part));
            _mm_stream_si128((__m128i *)(void *)(to + i * LINE + part), v);
        }
    }
    memcpy(to + lines * LINE, from + lines * LINE, bytes - lines * LINE);
    _mm_sfence();
}
#else
#define copy_past_caches copy
#endif

static void copy(char *to, const char *from, size_t bytes) { memcpy(to, from, bytes); }

static void copy_share(shares *s, size_t start, size_t bytes) { s->copy(s->to + start, s->from + start, bytes); }

void floor_copy(void *to, const void *from, size_t bytes, napier_pool *pool, int threads) {
    run_shares(&(shares){.take = copy_share, .copy = copy, .to = to, .from = from, .bytes = bytes}, pool, threads);
}

void floor_copy_past_caches(void *to, const void *from, size_t bytes, napier_pool *pool, int threads) {
    run_shares(&(shares){.take = copy_share, .copy = copy_past_caches, .to = to, .from = from, .bytes = bytes}, pool,
               threads);
}

/* ---- One source for every instruction set; the functions below choose the vectors -------------------------------- */

static inline __attribute__((always_inline)) uint64_t read_all(const uint64_t *from, size_t words) {
    uint64_t sums[LANES] = {0}, sum = 0;
    for (size_t i = 0; i + LANES <= words; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            sums[lane] ^= from[i + lane];
        }
    }
    for (size_t i = words - words % LANES; i < words; i++) {
        sum ^= from[i];
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        sum ^= sums[lane];
    }
    return sum;
}

/* The coefficients are those of the Taylor series: a floor needs the right amount of work, not the last bit. */
static inline __attribute__((always_inline)) float floor_exp(float x) {
    const float shifted = fmaf(x, 0x1.715476p+0f, 0x1.8p+23f); /* the nearest integer, in the low bits */
    const float whole = shifted - 0x1.8p+23f;
    const float r = fmaf(whole, 0x1.05c610p-29f, fmaf(whole, -0x1.62e430p-1f, x));
    float p = 0x1.6c16c2p-10f;
    p = fmaf(p, r, 0x1.111112p-7f);
    p = fmaf(p, r, 0x1.555556p-5f);
    p = fmaf(p, r, 0x1.555556p-3f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    uint32_t bits;
    uint32_t power;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&power, &shifted, sizeof power);
    bits += power << 23;
    memcpy(&p, &bits, sizeof p);
    return p;
}

static inline __attribute__((always_inline)) float exp_sum(const float *x, int64_t n) {
    float sums[LANES] = {0}, sum = 0;
    for (int64_t i = 0; i + LANES <= n; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            sums[lane] += floor_exp(x[i + lane]);
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        sum += sums[lane];
    }
    return sum;
}

static float exp_sum_plain(const float *x, int64_t n) { return exp_sum(x, n); }
static uint64_t read_all_plain(const uint64_t *from, size_t words) { return read_all(from, words); }
#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma")))
#if defined(__clang__)
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"), min_vector_width(512)))
#else
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")))
#endif
AVX2 static float exp_sum_avx2(const float *x, int64_t n) { return exp_sum(x, n); }
AVX2 static uint64_t read_all_avx2(const uint64_t *from, size_t words) { return read_all(from, words); }
AVX512 static float exp_sum_avx512(const float *x, int64_t n) { return exp_sum(x, n); }
AVX512 static uint64_t read_all_avx512(const uint64_t *from, size_t words) { return read_all(from, words); }
#endif

typedef struct kernels {
    float (*exp_sum)(const float *x, int64_t n);
    uint64_t (*read_all)(const uint64_t *from, size_t words);
} kernels;

static kernels kernels_of(napier_isa isa) {
#if defined(__x86_64__)
    if (isa == NAPIER_ISA_AVX512) {
        return (kernels){exp_sum_avx512, read_all_avx512};
    }
    if (isa == NAPIER_ISA_AVX2) {
        return (kernels){exp_sum_avx2, read_all_avx2};
    }
#endif
    (void)isa;
    return (kernels){exp_sum_plain, read_all_plain};
}

float floor_exp_sum(napier_isa isa, const float *x, int64_t n) { return kernels_of(isa).exp_sum(x, n); }

static void read_share(shares *s, size_t start, size_t bytes) {
    s->sum ^= s->read((const uint64_t *)(const void *)(s->from + start), bytes / sizeof(uint64_t));
}

uint64_t floor_read(napier_isa isa, const void *from, size_t bytes, napier_pool *pool, int threads) {
    shares s = {.take = read_share, .read = kernels_of(isa).read_all, .from = from, .bytes = bytes};
    run_shares(&s, pool, threads);
    return s.sum;
}

int64_t floor_cache_size(void) {
    const int64_t usual = (int64_t)1 << 20;
#ifdef _SC_LEVEL2_CACHE_SIZE
    const int64_t size = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return size > 0 ? size : usual;
#else
    return usual;
#endif
}
