/* bench/floors/floors_neon.c - the floor kernels for this instruction set. */
#if defined(__aarch64__)
#include <stdbool.h>
#define NAPIER_LANES_NEON
#define FLOORS_TABLE floor_neon
#include "floors.inc.h"
#else
#include "floors.h"
const floor_kernels floor_neon = {{NULL}, {NULL}, {NULL}, {NULL}, {NULL}};
#endif
