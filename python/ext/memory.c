/* memory.c - the memory of results. */
#include "ext.h"

#include <stdlib.h>

/* ---- Aligned memory, with a header ---------------------------------------------------------------------------------- */

typedef struct block {
    void *start;  /* of the memory that malloc gave; NULL: pages of the system */
    size_t bytes; /* of pages, with this header */
} block;

enum { HEADER = 64 }; /* bytes from a block to its memory */

static block *block_of(void *memory) { return (block *)(void *)((char *)memory - HEADER); }

static void *aligned_take(size_t bytes) {
    char *const start = bytes > SIZE_MAX - 2 * HEADER ? NULL : malloc(2 * HEADER + bytes);
    if (!start) {
        return NULL;
    }
    char *const memory = start + 2 * HEADER - (uintptr_t)start % HEADER;
    *block_of(memory) = (block){start, 0};
    return memory;
}

/* ---- Memory of results ----------------------------------------------------------------------------------------------
 * A new large result costs more time in page faults than in computation. So large blocks are kept, up to a limit, and
 * reused. Each has its own pages. Any thread may free a block, also without the GIL. */

enum { KEPT_BLOCKS = 1024, KEPT_SHARE = 16 }; /* a step of training frees some twenty for each layer of the model */
#define BLOCK_LARGE ((size_t)256 * 1024)
#define KEPT_LEAST ((size_t)512 * 1024 * 1024)
#define BLOCK_HUGE ((size_t)64 * 1024 * 1024) /* the system may take such a block's pages while nobody uses it */

static struct {
    PyThread_type_lock lock;
    block *kept[KEPT_BLOCKS];
    size_t sizes[KEPT_BLOCKS]; /* of each: a search reads no block */
    int count;
    size_t bytes, most; /* those that are kept, and that may be: a share of the machine's memory */
} blocks;

static void lock_blocks(void) { (void)PyThread_acquire_lock(blocks.lock, WAIT_LOCK); }
static void unlock_blocks(void) { PyThread_release_lock(blocks.lock); }

int memory_start(void) {
    const size_t share = machine_bytes() / KEPT_SHARE;
    blocks.most = share > KEPT_LEAST ? share : KEPT_LEAST;
    blocks.lock = PyThread_allocate_lock();
    return blocks.lock ? 0 : -1;
}

void memory_before_fork(void) { lock_blocks(); }
void memory_after_fork(void) { unlock_blocks(); }

void memory_in_child(void) {
    PyThread_type_lock const fresh = PyThread_allocate_lock(); /* the old one's insides may be those of a lost thread */
    if (fresh) {
        blocks.lock = fresh;
    } else {
        unlock_blocks();
    }
}

/* The smallest kept block that is large enough and at most a quarter larger than needed. */
static block *block_find(size_t bytes) {
    int best = -1;
    for (int i = 0; i < blocks.count; i++) {
        const size_t have = blocks.sizes[i];
        if (have >= bytes && have - bytes <= bytes / 4 && (best < 0 || have < blocks.sizes[best])) {
            best = i;
        }
    }
    if (best < 0) {
        return NULL;
    }
    block *b = blocks.kept[best];
    blocks.kept[best] = blocks.kept[--blocks.count];
    blocks.sizes[best] = blocks.sizes[blocks.count];
    blocks.bytes -= b->bytes;
    return b;
}

void *block_take(size_t bytes) {
    if (bytes > SIZE_MAX - HUGE_PAGE - HEADER) {
        return NULL;
    }
    if (bytes + HEADER < BLOCK_LARGE) {
        return aligned_take(bytes);
    }
    bytes += HEADER;
    const size_t page = bytes >= HUGE_PAGE ? HUGE_PAGE : 4096;
    bytes = (bytes + page - 1) / page * page;
    lock_blocks();
    block *b = block_find(bytes);
    unlock_blocks();
    if (!b) {
        b = pages_take(bytes);
        if (!b) {
            return NULL;
        }
        *b = (block){NULL, bytes};
    }
    return (char *)b + HEADER;
}

void block_give(void *memory) {
    if (!memory) {
        return;
    }
    block *b = block_of(memory);
    if (b->start) {
        free(b->start);
        return;
    }
    if (b->bytes >= BLOCK_HUGE) {
        pages_idle((char *)b + HUGE_PAGE, b->bytes - HUGE_PAGE); /* the header stays; nobody may take the block yet */
    }
    lock_blocks();
    const bool keep = blocks.count < KEPT_BLOCKS && blocks.bytes + b->bytes <= blocks.most;
    if (keep) {
        blocks.kept[blocks.count] = b;
        blocks.sizes[blocks.count++] = b->bytes;
        blocks.bytes += b->bytes;
    }
    unlock_blocks();
    if (!keep) {
        pages_give(b, b->bytes);
    }
}

size_t memory_release(void) {
    lock_blocks();
    const size_t bytes = blocks.bytes;
    for (int i = 0; i < blocks.count; i++) {
        pages_give(blocks.kept[i], blocks.sizes[i]);
    }
    blocks.count = 0;
    blocks.bytes = 0;
    unlock_blocks();
    return bytes;
}
