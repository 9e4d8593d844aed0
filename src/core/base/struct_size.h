/* core/base/struct_size.h - structs of a caller whose header may be older or newer than this library.
 *
 * The rule is in <napier/types.h>. `name` is the argument; error texts have it, and the macro that initialises the struct.
 * Every call of the library reads such a struct into one of its own, and looks at that one only. */
#ifndef NAPIER_CORE_BASE_STRUCT_SIZE_H
#define NAPIER_CORE_BASE_STRUCT_SIZE_H

#include <stddef.h>

#include "core/base/context.h"

/* What all versions of a struct have in common. */
typedef struct napier_struct {
    const char *init; /* the macro that initialises it */
    size_t first;     /* the least size of a version */
} napier_struct;

/* `later`: the first field that the oldest header may lack. */
#define NAPIER_STRUCT(type, init, later) ((napier_struct){#init, offsetof(type, later)})

/* Copies the fields that `given` has to *copy, which holds the defaults and its own struct_size. Fails if `given` is NULL. */
napier_status napier_read_struct(napier_context *context, const char *name, napier_struct kind, const void *given,
                                 void *copy);
/* The same, but NULL means all defaults. */
napier_status napier_read_options(napier_context *context, const char *name, napier_struct kind, const void *given,
                                  void *copy);

/* A struct that receives results. What of it this library does not know stays as it is. */
napier_status napier_check_result_struct(napier_context *context, const char *name, napier_struct kind,
                                         const void *result);
/* Writes those fields of *made that *result has. result->struct_size stays the caller's. */
void napier_write_struct(const void *made, void *result);

/* A struct that lies within another cannot grow, because what follows it would move. Its size must be this library's. */
napier_status napier_check_inner_struct(napier_context *context, const char *name, const char *init, const void *inner,
                                        size_t size);

#endif
