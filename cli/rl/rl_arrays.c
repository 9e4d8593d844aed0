/* cli/rl/rl_arrays.c - responses from arrays: [T] log-probs with offsets, or a table with one response per row. */
#include "rl_batch.h"

#include "io/input.h"
#include "program/message.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Opens an array and gives its shape in C order. */
static int open_array(input *in, const char *path) {
    if (input_open_whole(in, path)) {
        return STATUS_FAILED;
    }
    return in->shape.dims >= 1 && in->shape.dims <= 2
               ? STATUS_OK
               : complain("%s: an array of %d dimensions; one or two are wanted", in->name, in->shape.dims);
}

/* "[5]", "[2, 3]" */
static const char *shape_text(char out[64], const array_shape *shape) {
    if (shape->dims == 1) {
        snprintf(out, 64, "[%" PRId64 "]", shape->dim[0]);
    } else {
        snprintf(out, 64, "[%" PRId64 ", %" PRId64 "]", shape->dim[0], shape->dim[1]);
    }
    return out;
}

static bool same_shape(const array_shape *a, const array_shape *b) {
    return a->dims == b->dims && memcmp(a->dim, b->dim, (size_t)a->dims * sizeof *a->dim) == 0;
}

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

typedef struct column_filler {
    rl_column *column;
    rl_field field;
} column_filler;

static const char *take_field(void *user, double value) {
    const column_filler *const filler = user;
    return rl_column_add(filler->column, filler->field, value);
}

/* The shape of the log-probs determines that of the others. Advantages may be one per response. */
static int check_shape(rl_batch *batch, rl_field field, const input *in) {
    char have[64];
    char want[64];
    if (field == RL_LOGPROBS) {
        batch->shape = in->shape;
        batch->tokens = in->count;
        return STATUS_OK;
    }
    if (field == RL_ADVANTAGES && in->shape.dims == 1 && in->shape.dim[0] == batch->responses) {
        return STATUS_OK;
    }
    batch->advantages_per_token = batch->advantages_per_token || field == RL_ADVANTAGES;
    if (same_shape(&in->shape, &batch->shape)) {
        return STATUS_OK;
    }
    if (field == RL_ADVANTAGES) {
        return complain("%s: the shape is %s; [%" PRId64 "], one a response, or that of the log-probs, %s, is wanted",
                        in->name, shape_text(have, &in->shape), batch->responses, shape_text(want, &batch->shape));
    }
    return complain("%s: the shape is %s, of the log-probs %s", in->name, shape_text(have, &in->shape),
                    shape_text(want, &batch->shape));
}

static int read_field(rl_batch *batch, rl_field field, const char *path) {
    input in;
    column_filler filler = {&batch->columns[field], field};
    const int status = open_array(&in, path) || check_shape(batch, field, &in) || input_take(&in, take_field, &filler);
    batch->have |= RL_BIT(field);
    input_close(&in);
    return status;
}

/* ---- Where responses begin --------------------------------------------------------------------------------------- */

static const char *take_offset(void *user, double value) {
    rl_batch *const batch = user;
    const int64_t *const offsets = batch->offsets.data;
    const int64_t before = batch->offsets.count > 0 ? offsets[batch->offsets.count - 1] : 0;
    if (!(value >= 0 && value <= (double)batch->tokens && floor(value) == value)) {
        return "is not the number of a token, or how many there are";
    }
    if (batch->offsets.count == 0 && value != 0) {
        return "is not 0, where the first response begins";
    }
    if (value < (double)before) {
        return "is less than the one before";
    }
    return rl_offsets_add(batch, (int64_t)value) == STATUS_OK ? NULL : "has no place";
}

static int read_offsets(rl_batch *batch, const char *path) {
    input in;
    int status = open_array(&in, path) || (in.shape.dims != 1 && complain("%s: offsets have one dimension", in.name)) ||
                 input_take(&in, take_offset, batch);
    const int64_t *const offsets = batch->offsets.data;
    const int64_t count = batch->offsets.count;
    if (status == STATUS_OK && (count == 0 || offsets[count - 1] != batch->tokens)) {
        status = complain("%s: the last offset is %" PRId64 "; it must be the number of tokens, %" PRId64, in.name,
                          count > 0 ? offsets[count - 1] : 0, batch->tokens);
    }
    input_close(&in);
    return status;
}

/* All responses of a table are as long as its rows. A table without columns could have any number of rows. */
static int make_offsets(rl_batch *batch, const char *path) {
    int status = batch->tokens > 0 ? STATUS_OK : complain("%s: a table without numbers", path);
    for (int64_t row = 0; row <= batch->shape.dim[0] && status == STATUS_OK; row++) {
        status = rl_offsets_add(batch, row * batch->shape.dim[1]);
    }
    return status;
}

static int find_offsets(rl_batch *batch, const char *logprobs_path, const char *offsets_path) {
    if (offsets_path == NULL && batch->shape.dims == 1) {
        return complain("%s: one dimension: --offsets must say where responses begin", logprobs_path);
    }
    if (offsets_path != NULL && batch->shape.dims == 2) {
        return complain("%s: a table, whose rows are the responses: --offsets must not be given", logprobs_path);
    }
    const int status = offsets_path != NULL ? read_offsets(batch, offsets_path) : make_offsets(batch, logprobs_path);
    batch->responses = batch->offsets.count - 1;
    return status;
}

int rl_batch_read_arrays(rl_batch *batch, const char *const paths[RL_FIELDS], const char *offsets_path) {
    int status =
        read_field(batch, RL_LOGPROBS, paths[RL_LOGPROBS]) || find_offsets(batch, paths[RL_LOGPROBS], offsets_path);
    for (int field = RL_LOGPROBS + 1; field < RL_FIELDS && status == STATUS_OK; field++) {
        if (paths[field] != NULL) {
            status = read_field(batch, (rl_field)field, paths[field]);
        }
    }
    return status;
}
