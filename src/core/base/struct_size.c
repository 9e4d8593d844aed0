/* core/base/struct_size.c - see struct_size.h. */
#include "core/base/struct_size.h"

#include <string.h>

#include "core/base/scope.h"

/* No struct of any version is larger. The limit keeps a struct that nobody initialised from being read far beyond its end. */
enum { LARGEST = 4096 };

static size_t size_of(const void *any) { return *(const size_t *)any; }

/* Every version has a field behind struct_size, so sizeof of a pointer to the struct is no size. */
napier_status napier_check_result_struct(napier_context *context, const char *name, napier_struct kind,
                                         const void *result) {
    NAPIER_REFUSE_IF(context, !result, "%s: NULL", name);
    const size_t size = size_of(result);
    const bool is_none = size < kind.first || size <= sizeof(size_t) || size > LARGEST || size % _Alignof(size_t) != 0;
    NAPIER_REFUSE_IF(context, is_none, "%s: struct_size is %zu, which no version has; initialise the struct with %s",
                     name, size, kind.init);
    return NAPIER_OK;
}

napier_status napier_read_struct(napier_context *context, const char *name, napier_struct kind, const void *given,
                                 void *copy) {
    NAPIER_TRY(napier_check_result_struct(context, name, kind, given));
    const unsigned char *const bytes = given;
    const size_t size = size_of(given), known = size_of(copy);
    for (size_t i = known; i < size; i++) {
        NAPIER_REFUSE_IF(context, bytes[i] != 0,
                         "%s: struct_size is %zu, and byte %zu is not 0, but Napier " NAPIER_VERSION_STRING
                         " knows only %zu; leave newer fields 0, or use a newer library",
                         name, size, i, known);
    }
    const size_t shared = size < known ? size : known;
    memcpy((unsigned char *)copy + sizeof(size_t), bytes + sizeof(size_t), shared - sizeof(size_t));
    return NAPIER_OK;
}

napier_status napier_read_options(napier_context *context, const char *name, napier_struct kind, const void *given,
                                  void *copy) {
    return given ? napier_read_struct(context, name, kind, given, copy) : NAPIER_OK;
}

void napier_write_struct(const void *made, void *result) {
    const size_t size = size_of(result), known = size_of(made), shared = size < known ? size : known;
    memcpy((unsigned char *)result + sizeof(size_t), (const unsigned char *)made + sizeof(size_t),
           shared - sizeof(size_t));
}

napier_status napier_check_inner_struct(napier_context *context, const char *name, const char *init, const void *inner,
                                        size_t size) {
    NAPIER_REFUSE_IF(context, size_of(inner) != size, "%s: struct_size is %zu, not %zu; initialise it with %s", name,
                     size_of(inner), size, init);
    return NAPIER_OK;
}
