/* unit/core/fenv_support.h - every public call under hostile floating-point states of its caller: four rounding modes,
 * and where the machine has them flush-to-zero and denormals-are-zero. A test makes its calls by CALL, one line each;
 * each gives the same status, text and bytes (KEEP) as in the default state, and leaves the caller's state as it was,
 * exception flags included. Finally every function that a header declares must have been called. */
#ifndef NAPIER_TESTS_FENV_SUPPORT_H
#define NAPIER_TESTS_FENV_SUPPORT_H

#include "support/check.h"

#include <fenv.h>
#include <napier/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
enum { FENV_FLUSHES = 4 }; /* none, FTZ, DAZ, both */
static inline uint64_t fenv_control(void) { return _mm_getcsr(); }
static inline void fenv_flush(int how) { _mm_setcsr(_mm_getcsr() | (how & 1 ? 0x8000u : 0) | (how & 2 ? 0x40u : 0)); }
#elif defined(__aarch64__)
enum { FENV_FLUSHES = 2 }; /* none, FZ */
static inline uint64_t fenv_control(void) {
    uint64_t control, status;
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(control), "=r"(status) : : "memory");
    return control ^ status << 32;
}
static inline void fenv_flush(int how) {
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control) : : "memory");
    control |= how ? UINT64_C(1) << 24 : 0;
    __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory");
}
#else
enum { FENV_FLUSHES = 1 };
static inline uint64_t fenv_control(void) { return (uint64_t)fegetround(); }
static inline void fenv_flush(int how) { (void)how; }
#endif

typedef struct fenv_result {
    const char *name;
    uint64_t hash;
} fenv_result;

enum { FENV_MOST_CALLS = 256 };

static struct {
    napier_context *context;
    int rounding, flush;
    fenv_result first[FENV_MOST_CALLS], now[FENV_MOST_CALLS];
    int count;
    bool told[FENV_MOST_CALLS];
    uint64_t before;
} fenv_test;

/* A call that is wrong in one state mostly is in many: the first is told. */
static inline bool fenv_is_news(int call) {
    const bool told = fenv_test.told[call];
    fenv_test.told[call] = true;
    return !told;
}

static inline void fenv_keep(const void *bytes, size_t size) {
    fenv_result *r = &fenv_test.now[fenv_test.count - 1];
    for (size_t i = 0; i < size; i++) {
        r->hash = (r->hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
    }
}

static inline void fenv_begin(const char *name) {
    assert_true(fenv_test.count < FENV_MOST_CALLS);
    fenv_test.now[fenv_test.count++] = (fenv_result){name, UINT64_C(14695981039346656037)};
    assert_int_equal(fesetround(fenv_test.rounding), 0);
    (void)feraiseexcept(FE_DIVBYZERO);
    fenv_flush(fenv_test.flush);
    fenv_test.before = fenv_control();
}

static inline void fenv_end(void) {
    const uint64_t after = fenv_control();
    assert_int_equal(fesetenv(FE_DFL_ENV), 0);
    if (after != fenv_test.before && fenv_is_news(fenv_test.count - 1)) {
        problem("%s: the caller's state was %llx, is %llx", fenv_test.now[fenv_test.count - 1].name,
                (unsigned long long)fenv_test.before, (unsigned long long)after);
    }
}

static inline void fenv_status(napier_status status) {
    fenv_end();
    const char *text = napier_last_error(fenv_test.context);
    fenv_keep(&status, sizeof status);
    fenv_keep(text, strlen(text));
    expect(status == NAPIER_OK, "%s: %s", fenv_test.now[fenv_test.count - 1].name, text);
}

/* A call whose first argument is the context and whose status is kept; one whose value is kept; one without a value. */
#define CALL(function_, ...) (fenv_begin(#function_), fenv_status(function_(fenv_test.context, __VA_ARGS__)))
#define GIVES(type_, function_, ...)                 \
    do {                                             \
        fenv_begin(#function_);                      \
        const type_ value_ = function_(__VA_ARGS__); \
        fenv_end();                                  \
        fenv_keep(&value_, sizeof value_);           \
    } while (0)
#define VOID(function_, ...) (fenv_begin(#function_), function_(__VA_ARGS__), fenv_end())
#define KEEP(array_) fenv_keep(array_, sizeof(array_))

/* Runs all calls in every state, the default one first, with contexts of 1 and of 3 threads. */
static inline void fenv_run(void (*calls)(void)) {
    static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (int threads = 1; threads <= 3; threads += 2) {
        fenv_test.context = context_of(NAPIER_ISA_AUTO, threads);
        for (int state = 0; state < 4 * FENV_FLUSHES; state++) {
            fenv_test.rounding = roundings[state % 4];
            fenv_test.flush = state / 4;
            fenv_test.count = 0;
            calls();
            if (state == 0 && threads == 1) {
                memcpy(fenv_test.first, fenv_test.now, sizeof fenv_test.first);
            }
            for (int i = 0; i < fenv_test.count; i++) {
                if (fenv_test.first[i].hash != fenv_test.now[i].hash && fenv_is_news(i)) {
                    problem("%s: other bits, rounding %d, flush %d", fenv_test.now[i].name, state % 4, fenv_test.flush);
                }
            }
        }
        napier_context_destroy(fenv_test.context);
    }
}

static inline bool fenv_was_called(const char *name, size_t length) {
    for (int i = 0; i < fenv_test.count; i++) {
        if (strncmp(fenv_test.first[i].name, name, length) == 0 && fenv_test.first[i].name[length] == '\0') {
            return true;
        }
    }
    return false;
}

/* Every function that include/napier/<header> declares was called. Tests run in the project's folder. */
static inline void fenv_covers(const char *header) {
    static const char word[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    char path[64];
    snprintf(path, sizeof path, "include/napier/%s", header);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = room_for(1 << 20, 1);
    text[fread(text, 1, (1 << 20) - 1, file)] = '\0';
    fclose(file);
    int declared = 0;
    for (const char *at = text; (at = strstr(at, "\nNAPIER_API ")) != NULL; declared++) {
        at += 12;
        const char *end = strchr(at, '(');
        assert_non_null(end);
        const char *name = end;
        while (strchr(word, name[-1])) {
            name--;
        }
        expect(fenv_was_called(name, (size_t)(end - name)), "%s: %.*s is not tested", header, (int)(end - name), name);
    }
    expect(declared > 0, "%s: declares nothing", header);
    free(text);
}

/* About -8 to 8, one in eight of them subnormal. */
static inline void fenv_numbers(float *x, int64_t count, uint64_t seed) {
    uint64_t s = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int64_t i = 0; i < count; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        const float number = (float)((int32_t)(s >> 40) - 8388608);
        x[i] = s % 8 == 0 ? number * 0x1p-100f * 0x1p-51f : number / 1048573.0f;
    }
}

#endif
