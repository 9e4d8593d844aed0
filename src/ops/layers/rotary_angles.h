/* ops/layers/rotary_angles.h - the angles of rotary position embedding, with the same bits on every machine.
 *
 * Reference implementations compute the angles in f32, and models are trained that way. At long positions this rounding
 * dominates the error. So each step is rounded to f32 as in those: e_i = 2 i / dim, inverse_i = 1 / theta^e_i, angle =
 * position * inverse_i. Only cos and sin of the rounded angle are computed in double and rounded once. */
#ifndef NAPIER_OPS_LAYERS_ROTARY_ANGLES_H
#define NAPIER_OPS_LAYERS_ROTARY_ANGLES_H

#include <stdint.h>

/* Positions are integers below this limit. The argument reduction is accurate far beyond it. */
#define NAPIER_ROPE_POSITIONS (INT64_C(1) << 24)
#define NAPIER_ROPE_INVERSE_MOST 4.0f /* of a frequency, so that angles stay in the range of the reduction */
/* More than any head has. A stride of 0 would allow a size without end. */
#define NAPIER_ROTARY_FREQUENCIES (INT64_C(1) << 24)

/* cosines[i] and sines[i] of position * inverse[i], times scale, for i < half. */
void napier_rope_angles(const float *inverse, int64_t half, float scale, int64_t position, float *cosines,
                        float *sines);

/* cos and sin of x, |x| <= 2^24 * 4: absolute error below 2^-52. */
void napier_cos_sin(double x, double *cosine, double *sine);

#endif
