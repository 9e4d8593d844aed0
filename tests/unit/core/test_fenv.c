/* test_fenv - every public call (support/calls.h) under every floating-point state that its caller may have: four rounding
 * modes, and where the machine has them flush-to-zero and denormals-are-zero. A call gives the same status, text and bytes
 * as in the default state, on one thread and on three, and leaves the caller's state as it was, exception flags included.
 * Results on a GPU need one. */
#include <fenv.h>
#include <stdlib.h>
#include <string.h>

#include "support/calls.h"
#include "support/check.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
enum { FLUSHES = 4 }; /* none, FTZ, DAZ, both */
static uint64_t control(void) { return _mm_getcsr(); }
static void flush(int how) { _mm_setcsr(_mm_getcsr() | (how & 1 ? 0x8000u : 0) | (how & 2 ? 0x40u : 0)); }
#elif defined(__aarch64__)
enum { FLUSHES = 2 }; /* none, FZ */
static uint64_t control(void) {
    uint64_t fpcr, fpsr;
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(fpcr), "=r"(fpsr) : : "memory");
    return fpcr ^ fpsr << 32;
}
static void flush(int how) {
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr) : : "memory");
    fpcr |= how ? UINT64_C(1) << 24 : 0;
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr) : "memory");
}
#else
enum { FLUSHES = 1 };
static uint64_t control(void) { return (uint64_t)fegetround(); }
static void flush(int how) { (void)how; }
#endif

enum { STATES = 4 * FLUSHES };

/* Runs the call in a state; false if it changed that. */
static bool run_in_state(const public_call *call, napier_context *context, int state, napier_status *status) {
    static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    assert_int_equal(fesetround(roundings[state % 4]), 0);
    (void)feraiseexcept(FE_DIVBYZERO);
    flush(state / 4);
    const uint64_t before = control();
    *status = call_run(call, context);
    const uint64_t after = control();
    assert_int_equal(fesetenv(FE_DFL_ENV), 0);
    return expect(before == after, "%s: the caller's state was %llx, is %llx", call->name, (unsigned long long)before,
                  (unsigned long long)after);
}

/* A call that is wrong in one state mostly is in many: the first is reported. */
static void check_call(const public_call *call, napier_context *const contexts[2]) {
    static unsigned char wanted[CALL_RESULT_BYTES];
    bool right = true;
    for (int i = 0; i < 2 * STATES && right; i++) {
        napier_context *const context = contexts[i / STATES];
        napier_status status = NAPIER_OK;
        right = run_in_state(call, context, i % STATES, &status) && succeeded(context, status, call->name) &&
                expect(napier_last_error(context)[0] == '\0', "%s: a text", call->name);
        if (i == 0 || (i == STATES && call->flags & CALL_BY_THREADS)) {
            memcpy(wanted, call_result, sizeof wanted);
        }
        right = right && expect(memcmp(call_result, wanted, sizeof wanted) == 0,
                                "%s: other bits, rounding %d, flush %d", call->name, i % 4, i % STATES / 4);
    }
}

static void test_every_call_in_every_state(void) {
    napier_context *const contexts[2] = {context_for_test(NAPIER_ISA_AUTO, 1), context_for_test(NAPIER_ISA_AUTO, 3)};
    calls_open("test_fenv.tmp");
    for (int i = 0; i < calls_count(); i++) {
        const public_call call = call_at(i);
        check_call(&call, contexts);
    }
    check_calls_cover_headers();
    calls_close();
}

int main(void) { return RUN_TESTS("fenv", TEST(test_every_call_in_every_state)); }
