/* core/base/memory.h - allocation, and freed blocks that are kept for later. */
#ifndef NAPIER_CORE_BASE_MEMORY_H
#define NAPIER_CORE_BASE_MEMORY_H

#include <napier/types.h>
#include <stdbool.h>

enum { NAPIER_ALIGNMENT = 64 };

/* 1 if AddressSanitizer watches. Then nothing is kept, so that it finds uses of freed memory. */
#if defined(__SANITIZE_ADDRESS__)
#define NAPIER_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NAPIER_SANITIZED 1
#endif
#endif
#ifndef NAPIER_SANITIZED
#define NAPIER_SANITIZED 0
#endif

/* Allocates count * size bytes on the boundary of a cache line. NULL if the product overflows
 * or there is no memory, and if count is 0. */
void *napier_alloc(const napier_allocator *allocator, size_t count, size_t size);
void napier_free(const napier_allocator *allocator, void *memory);

typedef struct napier_block {
    void *memory;
    size_t bytes; /* 0: unknown */
} napier_block;

/* Freed blocks of the default allocator, the one that was freed last at the end. Otherwise the system would give each call new
 * pages, and clear them. */
enum { NAPIER_SPARES = 16 };
typedef struct napier_spares {
    bool kept; /* false: every block goes back to the allocator at once */
    int count;
    size_t bytes;
    napier_block blocks[NAPIER_SPARES];
} napier_spares;

/* count * size bytes, of a spare or of the allocator; memory is NULL if there is none. */
napier_block napier_spares_take(napier_spares *spares, const napier_allocator *allocator, size_t count, size_t size);
/* Keeps the block, or frees it. */
void napier_spares_give(napier_spares *spares, const napier_allocator *allocator, napier_block block);
void napier_spares_free(napier_spares *spares, const napier_allocator *allocator);

#endif
