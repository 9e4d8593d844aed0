/* umap/isa/umap_neon.c - the kernels of maps for AArch64's NEON. */
#include "core/isa/neon.h"
#include "umap/isa/umap_kernels.inc.h"
#include "core/isa/end.h"
