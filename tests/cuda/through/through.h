/* tests/cuda/through/through.h - the library's calls made on the device with arrays of the host. through_<call> takes what
 * napier_cuda_<call> takes, without stream, workspace and mode. It copies the arrays to the device, makes the call, waits, and
 * copies the results back, also those of a call that fails. `context`, one of the CPU's, gets the text of an error.
 *
 * Each time it also makes the calls that any operation must refuse: without a context, without the workspace that it asks
 * for, and with a workspace that is a byte too small. */
#ifndef NAPIER_TESTS_THROUGH_H
#define NAPIER_TESTS_THROUGH_H

#include <napier/cuda.h>
#include <napier/napier.h>

#include "cuda_test.h"
#include "through_calls.h"

#define THROUGH_PARAMETERS(...) napier_context *context, __VA_ARGS__
#define THROUGH_DECLARE(name, parameters, arguments) napier_status through_##name(THROUGH_PARAMETERS parameters);
THROUGH_CALLS(THROUGH_DECLARE)
THROUGH_PLAIN_CALLS(THROUGH_DECLARE)

/* The optimizer's arrays are of the host too; its steps are counted. */
napier_status through_umap_optimize_epochs(napier_context *context, const napier_umap_params *params,
                                           const napier_umap_epochs *epochs, const napier_umap_edge *edges,
                                           int64_t count, const uint32_t *targets,
                                           napier_cuda_umap_optimizer *optimizer, napier_matrix embedding);

/* The mode of the calls that have one: at first BITWISE. */
extern napier_cuda_mode through_mode;

/* The one context on the device. Ends the program if there is no device. */
napier_cuda_context *through_context(void);

/* Memory of which calls may use any part: a call that does copies all of it, and needs no other size. */
void through_know(void *memory, size_t bytes);
/* Forgets all but the first ones. */
void through_forget(int first);

#endif
