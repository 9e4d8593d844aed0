/* core/gpu/cuda_context.c - the part of a CUDA context that is the same on a device, on the emulated device, and
 * without any: arguments, errors, workspace, faults. */
#include <stdio.h>
#include <string.h>

#include "core/gpu/launch.h"
#include "core/gpu/opencl/opencl.h"

/* If creation fails, the context does not exist to hold the text of the error:
 * it is copied to `text`, if that is given. */
static napier_status context_make(napier_cuda_context **out, int device, const napier_opencl_choice *choice, char *text,
                                  size_t size) {
    const napier_context_options options = {.struct_size = sizeof options, .threads = 1};
    napier_context *host = NULL;
    NAPIER_TRY(napier_context_create(&host, &options));
    napier_cuda_context *const context = napier_alloc(&host->allocator, 1, sizeof *context);
    if (context == NULL) {
        napier_context_destroy(host);
        return NAPIER_OUT_OF_MEMORY;
    }
    memset(context, 0, sizeof *context);
    context->host = host;
    const napier_status status = choice ? napier_opencl_open(context, choice) : napier_device_open(context, device);
    if (status) {
        (void)snprintf(text, size, "%s", napier_last_error(host));
        napier_cuda_context_destroy(context);
        return status;
    }
    *out = context;
    return NAPIER_OK;
}

napier_status napier_cuda_context_create(napier_cuda_context **out, int device) {
    if (out == NULL) {
        return NAPIER_INVALID_ARGUMENT;
    }
    *out = NULL;
    return context_make(out, device, NULL, NULL, 0);
}

napier_status napier_cuda_device_status(int device, char *text, size_t size) {
    napier_cuda_context *context = NULL;
    if (size > 0 && text == NULL) {
        return NAPIER_INVALID_ARGUMENT;
    }
    if (size > 0) {
        text[0] = '\0';
    }
    const napier_status status = context_make(&context, device, NULL, text, size);
    napier_cuda_context_destroy(context);
    return status;
}

napier_status napier_opencl_context_create(napier_cuda_context **out, struct _cl_context *context,
                                           struct _cl_device_id *device, struct _cl_command_queue *queue,
                                           const napier_opencl_options *options, char *text, size_t size) {
    if (out == NULL || (size > 0 && text == NULL)) {
        return NAPIER_INVALID_ARGUMENT;
    }
    *out = NULL;
    if (size > 0) {
        text[0] = '\0';
    }
    return context_make(out, 0, &(napier_opencl_choice){context, device, queue, options}, text, size);
}

void napier_cuda_context_destroy(napier_cuda_context *context) {
    if (context != NULL) {
        napier_context *const host = context->host;
        if (context->calls != NULL) {
            context->calls->close(context);
        }
        napier_free(&host->allocator, context);
        napier_context_destroy(host);
    }
}

int napier_cuda_device_count(void) { return napier_device_count(); }

const char *napier_cuda_last_error(const napier_cuda_context *context) {
    return context ? napier_last_error(context->host) : "";
}

napier_status napier_cuda_begin(napier_cuda_context *context) { return napier_begin(context ? context->host : NULL); }

napier_status napier_cuda_synchronize(napier_cuda_context *context, struct CUstream_st *stream) {
    static const char *const what[NAPIER_FAULT_COUNT] = {
        [NAPIER_FAULT_IDS] = "ids: the id at index %lld is no column",
        [NAPIER_FAULT_OFFSETS] = "offsets: the offset at index %lld falls, or lies past the end",
        [NAPIER_FAULT_EDGES] = "edges: the edge at index %lld names no vertex, is out of order or has no weight",
        [NAPIER_FAULT_TARGETS] = "targets: the target at index %lld is no vertex",
        [NAPIER_FAULT_VALUES] = "values: the element at index %lld is not finite, or not what it must be",
        [NAPIER_FAULT_ROWS] = "logits: row %lld has a NaN, +inf or only -inf, or no id is left to draw",
        [NAPIER_FAULT_LENGTHS] = "offsets: the sequence at index %lld has more tokens than the model has positions",
        [NAPIER_FAULT_PARTS] = "parts: row %lld has bytes that are not the state of these columns with these options",
    };
    napier_cuda_faults faults;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(context->calls->wait(context, stream, &faults));
    for (int i = 0; i < NAPIER_FAULT_COUNT; i++) {
        NAPIER_REFUSE_IF(context->host, faults.seen[i] != 0, what[i], (long long)(INT64_MAX - faults.seen[i]));
    }
    return NAPIER_OK;
}

/* ---- Workspace ----------------------------------------------------------------------------------------------------- */

enum { ROOM_ALIGNMENT = 256 };

napier_cuda_room napier_cuda_room_of(napier_cuda_workspace *workspace) {
    return (napier_cuda_room){.workspace = workspace};
}

void *napier_cuda_take(napier_cuda_room *room, int64_t count, size_t size) {
    const size_t begin = room->used;
    if (count < 0 || (uint64_t)count > (SIZE_MAX / 2 - begin) / size) {
        room->overflow = true;
        return NULL;
    }
    const size_t bytes = ((size_t)count * size + ROOM_ALIGNMENT - 1) & ~(size_t)(ROOM_ALIGNMENT - 1);
    room->used = begin + bytes;
    const napier_cuda_workspace *const w = room->workspace;
    return w && w->data && room->used <= w->size ? (char *)w->data + begin : NULL;
}

bool napier_cuda_room_ready(napier_cuda_context *context, const napier_cuda_room *room, napier_status *status) {
    napier_cuda_workspace *const w = room->workspace;
    *status = NAPIER_OK;
    if (room->overflow) {
        *status = napier_fail(context->host, NAPIER_OUT_OF_MEMORY, "workspace: the bytes needed do not fit a size_t");
        return false;
    }
    if (w != NULL && w->data == NULL) {
        w->size = room->used;
        return false;
    }
    if (room->used == 0) {
        return true;
    }
    if (w == NULL || w->size < room->used) {
        *status =
            napier_fail(context->host, NAPIER_INVALID_ARGUMENT, "workspace: size %zu is less than the %zu bytes needed",
                        w ? w->size : (size_t)0, room->used);
    } else if ((uintptr_t)w->data % ROOM_ALIGNMENT != 0) {
        *status = napier_fail(context->host, NAPIER_INVALID_ARGUMENT,
                              "workspace: data %p is not on a boundary of %d bytes", w->data, ROOM_ALIGNMENT);
    }
    return *status == NAPIER_OK;
}
