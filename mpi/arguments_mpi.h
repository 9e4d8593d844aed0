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

/* All bytes of options as one number, by which ranks compare them. The pointer `keep` is none: it is not supported. */
int64_t code_of(const void *options, size_t size);
int64_t code_of_softmax(const napier_softmax_options *options);

/* A matrix of f32, f16 or bf16 whose elements can be read. */
napier_status check_matrix(napier_context *context, const char *name, napier_const_matrix m);

#endif
