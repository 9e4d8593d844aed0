/* core/isa/neon.h - begins a file that compiles kernels for AArch64's NEON.
 * NAPIER_TABLE(name) is the name of their table. The file ends with core/isa/end.h. On other processors it is empty. */
#if defined(__aarch64__)
#define NAPIER_LANES_NEON
#define NAPIER_TABLE(name) name##_neon
#else
typedef int napier_neon_is_for_another_processor;
#endif
