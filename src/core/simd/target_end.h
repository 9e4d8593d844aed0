/* core/simd/target_end.h - ends the region that core/simd/target_avx2.h or core/simd/target_avx512.h began. */
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
