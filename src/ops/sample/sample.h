/* ops/sample/sample.h - the checked arguments of a call, and the refusal of a row, for the CPU and a GPU. */
#ifndef NAPIER_OPS_SAMPLE_SAMPLE_H
#define NAPIER_OPS_SAMPLE_SAMPLE_H

#include "core/base/context.h"
#include "ops/sample/sample_row.h"

/* Contents of arrays in a GPU's memory are not checked. */
napier_status napier_sample_arguments(napier_context *context, napier_place place, napier_const_matrix logits,
                                      const napier_sample_options *options, const napier_sample_results *results,
                                      napier_sample_call *call);

#endif
