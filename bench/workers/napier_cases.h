/* bench/workers/napier_cases.h - what the tables of Napier's operations share: the context, and the floors. */
#ifndef BENCH_NAPIER_CASES_H
#define BENCH_NAPIER_CASES_H

#include "floors/floors.h"
#include "worker.h"

#include <napier/napier.h>

extern const bench_case softmax_cases[], token_cases[], product_cases[], umap_cases[], model_cases[];

extern napier_context *context;
extern int context_threads;

/* f32, bf16 or f16, as the prepare line says. */
napier_dtype job_dtype(void);

/* NULL, or why the status is not NAPIER_OK. */
const char *refusal_of(napier_status status);

/* Chooses the floors of an operation that reads `rows` times `row_bytes` and writes `out_bytes`, as much as it reads or
 * less; with `again` a row that does not fit the second cache is read twice. */
void choose_floors(const void *in, void *out, size_t rows, size_t row_bytes, size_t out_bytes, bool again);

/* Chooses the compute floor of a row-wise operation: floor_row. */
void choose_floor_row(floor_op op, napier_dtype dtype);

#endif
