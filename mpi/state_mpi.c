/* mpi/state_mpi.c - mergeable states over ranks: an MPI_Op on their byte form, and the reduction that uses it. */
#include <string.h>

#include "exchange.h"

/* ---- Records: 8 bytes with the size, in the order of this machine, the state's bytes, zeros ------------------------------ */

napier_status napier_mpi_softmax_state_pack(napier_context *context, const napier_softmax_state *state, void *record) {
    const uint64_t size = napier_softmax_state_size(state);
    if (!record || !state) {
        return napier_set_error(context, NAPIER_INVALID_ARGUMENT, state ? "record: is NULL" : "state: is NULL");
    }
    memset(record, 0, NAPIER_MPI_STATE_BYTES);
    const napier_status status = napier_softmax_state_to_bytes(context, state, (char *)record + sizeof size,
                                                               NAPIER_MPI_STATE_BYTES - sizeof size);
    if (!status) {
        memcpy(record, &size, sizeof size);
    }
    return status;
}

napier_status napier_mpi_softmax_state_unpack(napier_context *context, const void *record, napier_softmax_state **out) {
    uint64_t size;
    if (out) {
        *out = NULL;
    }
    if (!record) {
        return napier_set_error(context, NAPIER_INVALID_ARGUMENT, "record: is NULL");
    }
    memcpy(&size, record, sizeof size);
    if (size > NAPIER_MPI_STATE_BYTES - sizeof size) {
        const unsigned low = (unsigned)(size & 0xff); /* see `merge` */
        const bool spoiled = size >> 8 == UINT64_MAX >> 8 && low > NAPIER_OK && low <= NAPIER_DEVICE_ERROR;
        return spoiled ? napier_set_error(context, (napier_status)low,
                                          "record: two of the states do not merge: the part of each rank must begin "
                                          "where that of the rank before ends")
                       : napier_set_error(context, NAPIER_CORRUPT_DATA, "record: its size is that of no state");
    }
    return napier_softmax_state_from_bytes(context, (const char *)record + sizeof size, (size_t)size, out);
}

/* Makes a record that no state has, but the status of what failed. */
static void spoil(void *record, napier_status status) {
    const uint64_t size = (UINT64_MAX & ~UINT64_C(0xff)) | (uint64_t)status;
    memcpy(record, &size, sizeof size);
}

static napier_status merge_records(napier_context *context, const void *before, void *record) {
    napier_softmax_state *lower = NULL, *upper = NULL;
    napier_status status = napier_mpi_softmax_state_unpack(context, before, &lower);
    status = status ? status : napier_mpi_softmax_state_unpack(context, record, &upper);
    status = status ? status : napier_softmax_state_merge(context, lower, upper);
    status = status ? status : napier_mpi_softmax_state_pack(context, lower, record);
    napier_softmax_state_destroy(lower);
    napier_softmax_state_destroy(upper);
    return status;
}

/* MPI gives no argument to an operation, and it cannot fail. So it makes a context of its own, and a failure is a record. */
static void merge(void *in, void *inout, int *count, MPI_Datatype *type) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    napier_context *context = NULL;
    options.threads = 1;
    (void)type;
    const napier_status made = napier_context_create(&context, &options);
    for (int i = 0; i < *count; i++) {
        char *const record = (char *)inout + (size_t)i * NAPIER_MPI_STATE_BYTES;
        const napier_status status =
            made ? made : merge_records(context, (const char *)in + (size_t)i * NAPIER_MPI_STATE_BYTES, record);
        if (status) {
            spoil(record, status);
        }
    }
    napier_context_destroy(context);
}

napier_status napier_mpi_softmax_state_op(napier_context *context, MPI_Datatype *type, MPI_Op *op) {
    if (!type || !op) {
        return napier_set_error(context, NAPIER_INVALID_ARGUMENT, type ? "op: is NULL" : "type: is NULL");
    }
    if (MPI_Type_contiguous(NAPIER_MPI_STATE_BYTES, MPI_BYTE, type) != MPI_SUCCESS) {
        return napier_set_error(context, NAPIER_IO_ERROR, "type: MPI_Type_contiguous failed");
    }
    if (MPI_Type_commit(type) != MPI_SUCCESS || MPI_Op_create(merge, 0, op) != MPI_SUCCESS) {
        (void)MPI_Type_free(type);
        return napier_set_error(context, NAPIER_IO_ERROR, "op: MPI_Op_create failed");
    }
    return NAPIER_OK;
}

/* ---- One state for all ranks ------------------------------------------------------------------------------------------- */

napier_status napier_mpi_softmax_state_merge(napier_context *context, MPI_Comm comm, const napier_softmax_state *state,
                                             napier_softmax_state **out) {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Op op = MPI_OP_NULL;
    char mine[NAPIER_MPI_STATE_BYTES], all[NAPIER_MPI_STATE_BYTES];
    if (out) {
        *out = NULL;
    }
    napier_status status = napier_mpi_softmax_state_op(context, &type, &op);
    if (status) {
        return status;
    }
    const napier_status packed = napier_mpi_softmax_state_pack(context, state, mine);
    if (packed) {
        spoil(mine, packed); /* all ranks learn of it */
    }
    if (MPI_Allreduce(mine, all, 1, type, op, comm) != MPI_SUCCESS) {
        status = napier_set_error(context, NAPIER_IO_ERROR, "state: MPI_Allreduce failed");
    }
    (void)MPI_Op_free(&op);
    (void)MPI_Type_free(&type);
    if (packed || status) {
        return packed ? packed : status;
    }
    return napier_mpi_softmax_state_unpack(context, all, out);
}
