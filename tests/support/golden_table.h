/* golden_table.h - the program around a table of golden bits: golden_umap, golden_rl, golden_linear.
 *
 *   PROGRAM [--isa NAME] [--threads N] [--quick] --check FILE | --write FILE
 *
 * A line of a table is `what hash`: the 64-bit FNV-1a hash of the bits that a call gave for numbers made by the program.
 * Every machine, instruction set, compiler and thread count must come to the same hashes. --quick: small data only, for
 * emulators; lines of the table that are passed over are no error. Exit status: 0 all lines match, 1 some do not, 2 the
 * table or the arguments are wrong, 77 the instruction set is not here. */
#ifndef NAPIER_TESTS_GOLDEN_TABLE_H
#define NAPIER_TESTS_GOLDEN_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include <napier/types.h>

/* The context that all calls use, while the cases run. */
extern napier_context *golden_context;

/* The whole of main: `cases` comes to the lines, one golden_line after another. */
int golden_main(const char *program, int count, char **words, void (*cases)(int quick));

/* Writes the line, or compares it with the table's. */
void golden_line(const char *name, uint64_t hash);

/* Memory that is there and 0; a call that succeeded; else the program ends with 2. */
void *golden_room(int64_t count, size_t size);
void golden_demand(napier_status status);
_Noreturn void golden_give_up(const char *what, const char *detail);

/* Where a hash starts, and the hash with the low `size` bytes of `bits` behind it. */
#define GOLDEN_BASIS UINT64_C(0xcbf29ce484222325)
uint64_t golden_hash(uint64_t hash, uint64_t bits, size_t size);

#endif
