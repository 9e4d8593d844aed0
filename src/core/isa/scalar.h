/* core/isa/scalar.h - begins a file that compiles kernels for plain C. The other instruction sets are compared with it.
 * NAPIER_TABLE(name) is the name of their table. The file ends with core/isa/end.h. */
#define NAPIER_LANES_SCALAR
#define NAPIER_TABLE(name) name##_scalar
