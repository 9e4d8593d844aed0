/* core/isa/scalar.h - begins a file that compiles kernels in plain C, with which those of other instruction sets are compared.
 * NAPIER_TABLE(name) is the name of their table. The file ends with core/isa/end.h. */
#define NAPIER_LANES_SCALAR
#define NAPIER_TABLE(name) name##_scalar
