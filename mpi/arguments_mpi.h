/* mpi/arguments_mpi.h - checks of arguments that must come before the first message. The other checks are those of the
 * calls on shards. */
#ifndef NAPIER_MPI_ARGUMENTS_MPI_H
#define NAPIER_MPI_ARGUMENTS_MPI_H

#include <napier/mpi.h>

/* Copies the fields that `given` has to *copy, which holds the defaults and its own struct_size: the rule of
 * napier/types.h for the structs of older and newer headers. `init` is the macro that initialises the struct. */
napier_status read_struct(napier_context *context, const char *name, const char *init, const void *given, void *copy);
/* The same, but NULL means all defaults. */
napier_status read_options(napier_context *context, const char *init, const void *given, void *copy);

/* A matrix of f32, f16 or bf16 whose elements can be read. */
napier_status check_matrix(napier_context *context, const char *name, napier_const_matrix m);

/* A matrix and its name in texts. */
typedef struct named {
    const char *name;
    napier_const_matrix m;
} named;

napier_status check_shape(napier_context *context, named m, int64_t rows, int64_t cols);

/* Checks that `out` can be written without a change of others[0 .. count - 1]. An absent matrix overlaps nothing. Two views
 * overlap if their ranges of bytes do, unless they are different columns of rows that are equally far apart. */
napier_status check_output(napier_context *context, named out, const named *others, int count);

#endif
