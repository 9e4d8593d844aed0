/* core/base/fenv.h - the default floating-point state while Napier computes: round to
 * nearest even, subnormals kept, no traps.
 *
 * A caller's flush-to-zero flags or rounding mode would change bits, and even checks: under denormals-are-zero 1e-40 >
 * 0 is false. So a public call enters the default state before its first comparison and leaves it after its last. In
 * between it must call a function whose results go through memory, because the compiler may move plain arithmetic
 * across the change of state. The control register belongs to a thread, so every worker enters and leaves by itself.
 * Leaving restores the caller's state, exception flags included. tests/unit/core/test_fenv.c tests
 * every public call. */
#ifndef NAPIER_CORE_BASE_FENV_H
#define NAPIER_CORE_BASE_FENV_H

#if defined(__SSE2__) && defined(__GNUC__)

#include <xmmintrin.h>

typedef struct napier_fenv {
    unsigned control;
    unsigned short x87;
} napier_fenv;

enum { NAPIER_FENV_ROUNDING = 0x6000 }; /* in `control`; 0: nearest even */

/* glibc's conversions of decimal numbers (snprintf, strtod) round as the x87 unit is told to. fesetround tells both. */
static inline void napier_fenv_set_x87(unsigned short control) { __asm__ volatile("fldcw %0" : : "m"(control)); }

static inline napier_fenv napier_fenv_enter(void) {
    napier_fenv saved = {_mm_getcsr(), 0};
    _mm_setcsr(0x1f80u); /* all exceptions masked, flags clear, nearest even, neither FTZ nor DAZ */
    if (saved.control & NAPIER_FENV_ROUNDING) {
        __asm__ volatile("fnstcw %0" : "=m"(saved.x87));
        napier_fenv_set_x87((unsigned short)(saved.x87 & ~0x0c00u));
    }
    return saved;
}

static inline void napier_fenv_leave(napier_fenv saved) {
    if (saved.control & NAPIER_FENV_ROUNDING) {
        napier_fenv_set_x87(saved.x87);
    }
    _mm_setcsr(saved.control);
}

#elif defined(__aarch64__) && defined(__GNUC__)

#include <stdint.h>

typedef struct napier_fenv {
    uint64_t control, status;
} napier_fenv;

static inline napier_fenv napier_fenv_enter(void) {
    napier_fenv saved;
    const uint64_t zero = 0; /* nearest even, no flush to zero, IEEE half, no traps, NaN payloads kept */
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(saved.control), "=r"(saved.status) : : "memory");
    __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %0" : : "r"(zero) : "memory");
    return saved;
}

static inline void napier_fenv_leave(napier_fenv saved) {
    __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(saved.control), "r"(saved.status) : "memory");
}

#else

#include <fenv.h>

typedef fenv_t napier_fenv;

static inline napier_fenv napier_fenv_enter(void) {
    napier_fenv saved;
    (void)fegetenv(&saved);
    (void)fesetenv(FE_DFL_ENV);
    return saved;
}

static inline void napier_fenv_leave(napier_fenv saved) { (void)fesetenv(&saved); }

#endif
#endif
