/* umap/start/duo.h - vectors of two doubles, in plain C, because every 64-bit machine has registers for them. Each
 * operation is one rounding for each lane, so the bits are those of a loop over doubles. (A GNU C extension, which
 * clang has too.) */
#ifndef NAPIER_UMAP_START_DUO_H
#define NAPIER_UMAP_START_DUO_H

#include <string.h>

typedef double napier_duo __attribute__((vector_size(16)));

static inline napier_duo napier_duo_of(double x) { return (napier_duo){x, x}; }

static inline napier_duo napier_duo_load(const double *p) {
    napier_duo v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void napier_duo_store(double *p, napier_duo v) { memcpy(p, &v, sizeof v); }

#endif
