/* tests/cuda/through/through.h - arrays that visit the device for the length of one call: what through_device_*.c
 * share. */
#ifndef NAPIER_TESTS_THROUGH_H
#define NAPIER_TESTS_THROUGH_H

#define NAPIER_THROUGH_DEVICE_ITSELF
#include "through_device.h"

#include "cuda_test.h"

/* The one context on the device. */
napier_cuda_context *through_context(void);

/* The view's memory on the device: one array for all views of the same memory, so what is in place stays in place. Results are
 * copied there too, for what lies between their elements, and back by through_end. */
napier_const_matrix through_matrix(napier_const_matrix view);
napier_matrix through_matrix_out(napier_matrix view);
napier_const_vector through_vector(napier_const_vector view);
napier_vector through_vector_out(napier_vector view);
/* `bytes` at `host`; NULL stays NULL. */
const void *through_array(const void *host, size_t bytes);
void *through_array_out(void *host, size_t bytes);
napier_indices through_indices(napier_indices ids);

/* Ends a call: waits, copies results back, frees all; an error's text goes to `context`. Gives back `status`, or what the
 * device found wrong. */
napier_status through_end(napier_context *context, napier_status status);

/* A call that asks for its workspace first: `call` is made with `workspace` in it twice. */
#define THROUGH_TWICE(status, workspace, call)                      \
    do {                                                            \
        napier_cuda_workspace workspace##_room = {NULL, 0};         \
        napier_cuda_workspace *const workspace = &workspace##_room; \
        status = (call);                                            \
        if (status == NAPIER_OK) {                                  \
            workspace->data = device_new(workspace->size);          \
            status = (call);                                        \
            through_wait();                                         \
            device_free(workspace->data);                           \
        }                                                           \
    } while (0)
void through_wait(void);

#endif
