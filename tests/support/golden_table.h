/* golden_table.h - the common part of the programs that check a table of golden bits; tests/bits/programs.list names
 * them.
 *
 *   PROGRAM [--isa NAME] [--threads N] [--quick] [--scramble] --check FILE | --write FILE
 *
 * A line of a table is `what hash`: the 64-bit FNV-1a hash of the result bits of a call on numbers that the program
 * generates. Every machine, instruction set, compiler and thread count must give the same hashes. --quick: small data
 * only, for emulators; the other lines of the table are ignored. --scramble: see golden.c. Exit status: 0 all lines
 * match, 1 some do not, 2 the table or the arguments are wrong, 77 the machine lacks the instruction set. */
#ifndef NAPIER_TESTS_GOLDEN_TABLE_H
#define NAPIER_TESTS_GOLDEN_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include <napier/types.h>

/* The context for all calls of the cases. */
extern napier_context *golden_context;
/* Whether --scramble was given. */
extern int golden_scramble;

/* The whole of main. `cases` produces the lines with one golden_line after another. */
int golden_main(const char *program, int count, char **words, void (*cases)(int quick));

/* Writes the numerics version, or compares it with the table's. */
void golden_version(void);
/* Writes the line of this name, or compares it with the table's. */
__attribute__((format(printf, 2, 3))) void golden_line(uint64_t hash, const char *format, ...);

/* golden_room returns zeroed memory, and golden_demand checks a status; on failure both end the program with 2. The memory
 * lives until golden_release or the program's end. */
void *golden_room(int64_t count, size_t size);
void golden_release(void);
void golden_demand(napier_status status);
/* The contents of the file files/NAME beside the table. */
const unsigned char *golden_file(const char *name, size_t *size);
_Noreturn void golden_give_up(const char *what, const char *detail);

/* The initial hash, and the hash extended by the low `size` bytes of `bits`. */
#define GOLDEN_BASIS UINT64_C(0xcbf29ce484222325)
uint64_t golden_hash(uint64_t hash, uint64_t bits, size_t size);
uint64_t hash_elements(uint64_t hash, const void *elements, napier_dtype dtype, int64_t count);
uint64_t hash_integers(uint64_t hash, const int64_t *integers, int64_t count);

#endif
