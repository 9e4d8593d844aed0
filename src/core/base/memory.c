/* core/base/memory.c - see memory.h. */
#include "core/base/memory.h"

#include <stdint.h>
#include <string.h>

#include "core/base/platform.h"

void *napier_alloc(const napier_allocator *allocator, size_t count, size_t size) {
    if (count == 0 || size == 0 || count > SIZE_MAX / size) {
        return NULL;
    }
    return allocator->allocate(count * size, NAPIER_ALIGNMENT, allocator->user);
}

void napier_free(const napier_allocator *allocator, void *memory) {
    if (memory != NULL) {
        allocator->deallocate(memory, allocator->user);
    }
}

/* ---- Spares -------------------------------------------------------------------------------------------------------- */

enum { SPARE_LEAST = 32 << 10, SPARES_MOST = 64 << 20 };

/* Takes the i-th spare out. */
static napier_block remove_spare(napier_spares *s, int i) {
    const napier_block block = s->blocks[i];
    s->count--;
    s->bytes -= block.bytes;
    memmove(s->blocks + i, s->blocks + i + 1, (size_t)(s->count - i) * sizeof block);
    return block;
}

/* The smallest spare that is large enough, and of which at least half is needed. */
static napier_block find_spare(napier_spares *s, size_t bytes) {
    int best = -1;
    for (int i = 0; i < s->count; i++) {
        const size_t have = s->blocks[i].bytes;
        if (have >= bytes && have / 2 <= bytes && (best < 0 || have < s->blocks[best].bytes)) {
            best = i;
        }
    }
    return best < 0 ? (napier_block){NULL, 0} : remove_spare(s, best);
}

napier_block napier_spares_take(napier_spares *s, const napier_allocator *allocator, size_t count, size_t size) {
    size_t bytes = size > 0 && count <= SIZE_MAX / size ? count * size : 0;
    if (s->kept && bytes >= SPARE_LEAST) {
        const napier_block spare = find_spare(s, bytes);
        if (spare.memory) {
            return spare;
        }
        bytes = napier_whole_pages(bytes);
    }
    void *memory = napier_alloc(allocator, bytes, 1);
    if (!memory && s->count > 0) {
        napier_spares_free(s, allocator);
        memory = napier_alloc(allocator, bytes, 1);
    }
    return (napier_block){memory, bytes};
}

void napier_spares_give(napier_spares *s, const napier_allocator *allocator, napier_block block) {
    if (!block.memory || !s->kept || NAPIER_SANITIZED || block.bytes < SPARE_LEAST || block.bytes > SPARES_MOST) {
        napier_free(allocator, block.memory);
        return;
    }
    while (s->count == NAPIER_SPARES || s->bytes + block.bytes > SPARES_MOST) {
        napier_free(allocator, remove_spare(s, 0).memory);
    }
    s->blocks[s->count++] = block;
    s->bytes += block.bytes;
}

void napier_spares_free(napier_spares *s, const napier_allocator *allocator) {
    while (s->count > 0) {
        napier_free(allocator, remove_spare(s, 0).memory);
    }
}
