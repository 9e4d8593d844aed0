/* cli/program/scratch.h - room for numbers: memory while it lasts, else a file in $TMPDIR that the system pages in and
 * out. */
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

/* `bytes` bytes of any content; what is more than memory_usable() goes to a file. `advice` ends the message of a failure:
 * "; a smaller --buffer ..." or "". */
int scratch_new(scratch *s, int64_t bytes, const char *advice);
void scratch_free(scratch *s);

/* A new temporary file, which has no name any more and vanishes when it is closed. NULL after a message. */
FILE *scratch_file(void);

#endif
