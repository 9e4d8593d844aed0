/* cli/program/scratch.h - space for numbers: memory if there is enough, else a file in $TMPDIR that the system pages in
 * and out. */
#ifndef NAPIER_CLI_SCRATCH_H
#define NAPIER_CLI_SCRATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct scratch {
    void *data; /* aligned to 64 bytes; NULL where size is 0 */
    size_t size;
    bool in_file;
} scratch;

/* Allocates `bytes` bytes of any content; more than memory_usable() goes to a file. `advice` ends the message of a
 * failure: "; a smaller --buffer ..." or "". */
int scratch_new(scratch *s, int64_t bytes, const char *advice);
void scratch_free(scratch *s);

/* Creates a temporary file without a name, which vanishes when it is closed. Returns NULL after a message. */
FILE *scratch_file(void);

#endif
