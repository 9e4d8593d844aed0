/* mpi/arguments_mpi.c - see arguments_mpi.h. */
#include "arguments_mpi.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static napier_status refuse(napier_context *context, const char *format, ...) {
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return napier_set_error(context, NAPIER_INVALID_ARGUMENT, text);
}

/* ---- Structs ----------------------------------------------------------------------------------------------------------- */

/* No struct of any version is larger. */
enum { LARGEST = 4096 };

napier_status read_struct(napier_context *context, const char *name, const char *init, const void *given, void *copy) {
    size_t size, known;
    if (!given) {
        return refuse(context, "%s: NULL", name);
    }
    memcpy(&size, given, sizeof size);
    memcpy(&known, copy, sizeof known);
    if (size < sizeof size || size > LARGEST || size % _Alignof(size_t) != 0) {
        return refuse(context, "%s: struct_size is %zu, which no version has; initialise the struct with %s", name,
                      size, init);
    }
    for (size_t i = known; i < size; i++) {
        if (((const unsigned char *)given)[i] != 0) {
            return refuse(context, "%s: struct_size is %zu, and byte %zu is not 0, but this version knows only %zu",
                          name, size, i, known);
        }
    }
    memcpy((char *)copy + sizeof size, (const char *)given + sizeof size, (size < known ? size : known) - sizeof size);
    return NAPIER_OK;
}

napier_status read_options(napier_context *context, const char *init, const void *given, void *copy) {
    return given ? read_struct(context, "options", init, given, copy) : NAPIER_OK;
}

/* ---- Codes of options ------------------------------------------------------------------------------------------------- */

int64_t code_of(const void *options, size_t size) {
    const unsigned char *bytes = options;
    uint64_t code = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) {
        code = (code ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return (int64_t)(code >> 1);
}

int64_t code_of_softmax(const napier_softmax_options *o) {
    const double values[2] = {o->temperature, (double)o->masked_rows};
    return code_of(values, sizeof values);
}

/* ---- Matrices ---------------------------------------------------------------------------------------------------------- */

napier_status check_matrix(napier_context *context, const char *name, napier_const_matrix m) {
    const bool narrow = m.dtype == NAPIER_F32 || m.dtype == NAPIER_F16 || m.dtype == NAPIER_BF16;
    const char *what = m.rows < 0 || m.cols < 0                        ? "its shape is negative"
                       : !narrow                                       ? "its dtype is not f32, f16 or bf16"
                       : !m.data && m.rows > 0 && m.cols > 0           ? "is NULL"
                       : m.rows > 0 && m.cols > INT64_MAX / 8 / m.rows ? "is too large"
                                                                       : NULL;
    return what ? refuse(context, "%s: %s", name, what) : NAPIER_OK;
}
