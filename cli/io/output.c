/* cli/io/output.c - writes results to temporary files, which take their final names together once the command has
 * succeeded. core/base/output_file.c, which the library shares, writes each file. */
#define _POSIX_C_SOURCE 200809L

#include "output.h"

#include "program/message.h"
#include "program/system.h"
#include "npy.h"
#include "text.h"

#include "core/base/output_file.h" /* with platform.h the only files of src/ that the program compiles too */

#include <math.h>
#include <string.h>

/* ---- The files of this run --------------------------------------------------------------------------------------- */

enum { MOST_OUTPUTS = 32 };

/* A static array, so that a signal handler can walk through it. */
static struct output_slot {
    napier_output_file file;
    const char *name;
    bool is_used, is_complete;
} slots[MOST_OUTPUTS];

/* A signal handler: only async-signal-safe calls are allowed. The array changes only while signals are held. */
static void remove_temporaries(void) {
    for (int i = 0; i < MOST_OUTPUTS; i++) {
        if (slots[i].is_used && slots[i].file.temporary[0] != '\0') {
            unlink(slots[i].file.temporary);
        }
    }
}

void output_handle_signals(void) { system_handle_signals(remove_temporaries); }

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

file_format output_format(const char *path, file_format input_format) {
    const bool is_stdout = path == NULL || strcmp(path, "-") == 0;
    const file_format named = is_stdout ? FORMAT_AUTO : format_of_name(path);
    if (named != FORMAT_AUTO) {
        return named;
    }
    if (is_stdout && isatty(STDOUT_FILENO) && input_format == FORMAT_NPY) {
        return FORMAT_CSV;
    }
    return input_format;
}

static int file_error(const char *name, int error) {
    /* The reader of a pipe has closed it because it has read enough, so no message is needed. */
    return system_is_closed_pipe(error) ? STATUS_FAILED : complain("%s: %s", name, strerror(error));
}

int output_error(const output *out) { return file_error(out->name, errno); }

static struct output_slot *free_slot(void) {
    for (int i = 0; i < MOST_OUTPUTS; i++) {
        if (!slots[i].is_used) {
            return &slots[i];
        }
    }
    return NULL;
}

/* Creates a temporary file while signals are blocked, so that the handler knows it from the moment it exists. Opening a
 * pipe may take for ever and can be interrupted. */
static int open_file(struct output_slot *slot) {
    if (!slot->file.is_moved) {
        return napier_output_file_open(&slot->file);
    }
    system_hold_signals();
    const int error = napier_output_file_open(&slot->file);
    system_release_signals();
    return error;
}

int output_open(output *out, const char *path) {
    memset(out, 0, sizeof *out);
    if (path == NULL || strcmp(path, "-") == 0) {
        out->name = "standard output";
        out->file = stdout;
        return STATUS_OK;
    }
    out->name = *path != '\0' ? path : "''";
    struct output_slot *const slot = free_slot();
    if (slot == NULL) {
        return complain("%s: more than %d files at once", out->name, (int)MOST_OUTPUTS);
    }
    int error = napier_output_file_place(&slot->file, path);
    if (error != 0) {
        return file_error(out->name, error);
    }
    slot->name = out->name;
    slot->is_complete = false;
    slot->is_used = true;
    out->slot = slot;
    error = open_file(slot);
    out->file = error == 0 ? fdopen(slot->file.fd, "wb") : NULL;
    if (out->file == NULL) {
        return file_error(out->name, error != 0 ? error : errno);
    }
    slot->file.fd = -1; /* the stream closes it */
    return STATUS_OK;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

int output_begin(output *out, file_format format, napier_dtype dtype, const array_shape *shape, const char *header) {
    out->format = format;
    out->dtype = dtype;
    out->columns = shape->dims > 1 ? shape->dim[shape->dims - 1] : 1;
    out->column = 0;
    if (format == FORMAT_NPY) {
        char bytes[NPY_WRITTEN_MAX];
        const size_t size = npy_write_header(bytes, dtype, shape);
        return fwrite(bytes, 1, size, out->file) == size ? STATUS_OK : output_error(out);
    }
    return header == NULL || fprintf(out->file, "%s\n", header) >= 0 ? STATUS_OK : output_error(out);
}

static int write_text(output *out, const char *elements, int64_t count) {
    const size_t size = napier_dtype_size(out->dtype);
    const char separator = format_separator(out->format);
    for (int64_t i = 0; i < count; i++) {
        char text[TEXT_NUMBER_MAX + 1];
        const int length = text_number(text, out->dtype, elements + (size_t)i * size);
        out->column = (out->column + 1) % out->columns;
        text[length] = out->column == 0 ? '\n' : separator;
        if (fwrite(text, 1, (size_t)length + 1, out->file) != (size_t)length + 1) {
            return output_error(out);
        }
    }
    return STATUS_OK;
}

/* Files are little-endian. */
static int write_swapped(output *out, const char *elements, size_t size, int64_t count) {
    char element[sizeof(double)];
    for (int64_t i = 0; i < count; i++) {
        memcpy(element, elements + (size_t)i * size, size);
        bytes_swap(element, size, 1);
        if (fwrite(element, size, 1, out->file) != 1) {
            return output_error(out);
        }
    }
    return STATUS_OK;
}

int output_write(output *out, const void *elements, int64_t count) {
    const size_t size = napier_dtype_size(out->dtype);
    if (out->format != FORMAT_NPY) {
        return write_text(out, elements, count);
    }
    if (machine_is_big_endian()) {
        return write_swapped(out, elements, size, count);
    }
    return fwrite(elements, size, (size_t)count, out->file) == (size_t)count ? STATUS_OK : output_error(out);
}

static int close_file(output *out) {
    FILE *const file = out->file;
    out->file = NULL;
    int error = fflush(file) != 0 ? errno : 0;
    if (error == 0 && out->slot != NULL) {
        out->slot->file.fd = fileno(file);
        error = napier_output_file_sync(&out->slot->file);
        out->slot->file.fd = -1;
    }
    const int closed = fclose(file) == 0 ? 0 : errno;
    return error != 0 ? error : closed;
}

int output_commit(output *out) {
    const int error = close_file(out);
    if (error != 0) {
        return file_error(out->name, error);
    }
    if (out->slot != NULL) {
        out->slot->is_complete = true;
    }
    return STATUS_OK;
}

static void drop_slot(struct output_slot *slot) {
    system_hold_signals();
    napier_output_file_discard(&slot->file);
    slot->is_used = false;
    system_release_signals();
}

void output_discard(output *out) {
    if (out->file != NULL && out->file != stdout) {
        fclose(out->file);
    }
    if (out->slot != NULL && !out->slot->is_complete) {
        drop_slot(out->slot);
    }
    memset(out, 0, sizeof *out);
}

int output_settle(int status) {
    system_hold_signals();
    for (int i = 0; i < MOST_OUTPUTS && status == STATUS_OK; i++) {
        const int error = slots[i].is_used ? napier_output_file_move(&slots[i].file) : 0;
        status = error == 0 ? STATUS_OK : file_error(slots[i].name, error);
    }
    system_release_signals();
    for (int i = 0; i < MOST_OUTPUTS; i++) {
        if (slots[i].is_used) {
            drop_slot(&slots[i]);
        }
    }
    return status;
}

/* ---- Whole files ------------------------------------------------------------------------------------------------- */

int output_array(const char *path, file_format format, const array_shape *shape, const float *numbers) {
    output out;
    const int status = output_open(&out, path) || output_begin(&out, format, NAPIER_F32, shape, NULL) ||
                       output_write(&out, numbers, shape_count(shape)) || output_commit(&out);
    output_discard(&out);
    return status;
}

int output_print(const char *path, output_printer *print, void *user) {
    output out;
    const int status = output_open(&out, path) || print(out.file, user) ||
                       (ferror(out.file) ? output_error(&out) : output_commit(&out));
    output_discard(&out);
    return status;
}

int output_bytes(const char *path, const void *bytes, size_t size) {
    output out;
    const int status = output_open(&out, path) ||
                       (fwrite(bytes, 1, size, out.file) == size ? output_commit(&out) : output_error(&out));
    output_discard(&out);
    return status;
}

void json_number(FILE *file, napier_dtype dtype, const void *number) {
    char text[TEXT_NUMBER_MAX];
    const double value = element_value(dtype, number);
    if (isfinite(value)) {
        text_number(text, dtype, number);
    }
    fputs(isnan(value) ? "NaN" : isinf(value) ? (value > 0 ? "Infinity" : "-Infinity") : text, file);
}

void json_f64(FILE *file, double number) { json_number(file, NAPIER_F64, &number); }

void json_list(FILE *file, const float *numbers, int64_t count) {
    fputc('[', file);
    for (int64_t i = 0; i < count; i++) {
        fputs(i > 0 ? ", " : "", file);
        json_number(file, NAPIER_F32, &numbers[i]);
    }
    fputc(']', file);
}
