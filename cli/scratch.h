/* cli/scratch.h - room for numbers: memory while it lasts, else a file in $TMPDIR that the system pages in and out. */
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

/* Half of this machine's memory: what is larger goes to a file. */
int64_t scratch_memory(void);

/* `bytes` bytes of any content. */
int scratch_new(scratch *s, int64_t bytes);
void scratch_free(scratch *s);

/* A new temporary file, which has no name any more and vanishes when it is closed. NULL after a message. */
FILE *scratch_file(void);

#endif
