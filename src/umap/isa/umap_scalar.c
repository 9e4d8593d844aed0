/* umap/isa/umap_scalar.c - the kernels of maps for plain C. */
#include "core/isa/scalar.h"
#include "umap/isa/umap_kernels.inc.h"
#include "core/isa/end.h"
