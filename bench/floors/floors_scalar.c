/* bench/floors/floors_scalar.c - the floor kernels in plain C. */
#include <stdbool.h>
#define NAPIER_LANES_SCALAR
#define FLOORS_TABLE floor_scalar
#include "floors.inc.h"
