/* rl/token_tile.inc.h - the kernels of token_tile.h. Included after the softmax room's kernels, once per instruction set. */
#include "rl/rl_kernels.h"

static void napier_token_z(const napier_token_rules *rules, const void *x, napier_dtype dtype, int64_t stride,
                           const uint8_t *keep, int64_t n, float *z) {
    (void)rules, (void)keep, napier_pack(x, dtype, stride, n, 1.0f, z);
}
static void napier_token_tile(const napier_token_wants *wants, const float *z, const uint8_t *keep, int n, int64_t tile,
                              const napier_token_slots *slots, napier_token_seen *seen) {
    (void)wants, (void)z, (void)keep, (void)n, (void)tile, (void)slots, (void)seen;
}
static napier_token_final napier_token_finish(const napier_token_wants *wants, const napier_token_slots *slots,
                                              int64_t tiles) {
    (void)wants, (void)slots, (void)tiles;
    return (napier_token_final){.entropy = 0};
}
