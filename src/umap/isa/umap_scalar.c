/* umap/isa/umap_scalar.c - the kernels of maps in plain C. */
#include "core/isa/scalar.h"
#include "umap/isa/umap_kernels.inc.h"
#include "core/isa/end.h"
