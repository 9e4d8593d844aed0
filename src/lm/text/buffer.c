/* lm/text/buffer.c - growing buffers. Their capacity doubles, so n appends take time linear in n. */
#include "lm/text/buffer.h"

#include <string.h>

#include "core/base/scope.h"

static napier_status no_memory(napier_context *context, size_t more) {
    return napier_fail(context, NAPIER_OUT_OF_MEMORY, "no memory for %zu more elements", more);
}

/* The new capacity, in elements of `size` bytes. 0: the size overflows. */
static size_t grown(size_t used, size_t capacity, size_t more, size_t size) {
    const size_t most = PTRDIFF_MAX / size;
    if (more > most - used) {
        return 0;
    }
    const size_t twice = capacity > most / 2 ? most : 2 * capacity;
    const size_t needed = used + more > 64 ? used + more : 64;
    return twice > needed ? twice : needed;
}

/* Moves `used` elements from *data to larger memory. *capacity receives its size. On an error *data stays. */
static napier_status grow(napier_context *context, void **data, size_t used, size_t *capacity, size_t more,
                          size_t size) {
    const size_t wanted = grown(used, *capacity, more, size);
    void *const made = napier_alloc(&context->allocator, wanted, size);
    if (made == NULL) {
        return no_memory(context, more);
    }
    if (used > 0) {
        memcpy(made, *data, used * size);
    }
    napier_free(&context->allocator, *data);
    *data = made;
    *capacity = wanted;
    return NAPIER_OK;
}

napier_status napier_token_buffer_reserve(napier_context *context, napier_token_buffer *buffer, size_t more) {
    size_t capacity = (size_t)buffer->capacity;
    void *ids = buffer->ids;
    if (more <= capacity - (size_t)buffer->size) {
        return NAPIER_OK;
    }
    NAPIER_TRY(grow(context, &ids, (size_t)buffer->size, &capacity, more, sizeof *buffer->ids));
    buffer->ids = ids;
    buffer->capacity = (int64_t)capacity;
    return NAPIER_OK;
}

napier_status napier_text_buffer_reserve(napier_context *context, napier_text_buffer *buffer, size_t more) {
    void *bytes = buffer->bytes;
    if (more <= buffer->capacity - buffer->size) {
        return NAPIER_OK;
    }
    NAPIER_TRY(grow(context, &bytes, buffer->size, &buffer->capacity, more, 1));
    buffer->bytes = bytes;
    return NAPIER_OK;
}

napier_status napier_text_buffer_append(napier_context *context, napier_text_buffer *buffer, const char *bytes,
                                        size_t size) {
    NAPIER_TRY(napier_text_buffer_reserve(context, buffer, size));
    if (size > 0) {
        memcpy(buffer->bytes + buffer->size, bytes, size);
        buffer->size += size;
    }
    return NAPIER_OK;
}

napier_status napier_scratch_reserve(napier_context *context, napier_scratch *scratch, size_t count, size_t size) {
    if (count <= scratch->capacity / size) {
        return NAPIER_OK;
    }
    napier_scratch_free(context, scratch);
    const size_t most = PTRDIFF_MAX / size / 2;
    const size_t wanted = count > most ? 0 : count + count / 2 + 64;
    scratch->data = napier_alloc(&context->allocator, wanted, size);
    scratch->capacity = scratch->data ? wanted * size : 0;
    return scratch->data ? NAPIER_OK : no_memory(context, count);
}

void napier_scratch_free(napier_context *context, napier_scratch *scratch) {
    napier_free(&context->allocator, scratch->data);
    *scratch = (napier_scratch){0};
}

napier_status napier_check_token_buffer(napier_context *context, const char *name, const napier_token_buffer *buffer) {
    NAPIER_REFUSE_IF(context, buffer == NULL, "%s: NULL", name);
    NAPIER_REFUSE_IF(
        context, buffer->size < 0 || buffer->capacity < buffer->size || (buffer->ids == NULL && buffer->capacity > 0),
        "%s: size %lld, capacity %lld%s", name, (long long)buffer->size, (long long)buffer->capacity,
        buffer->ids ? "" : ", ids NULL");
    return NAPIER_OK;
}

napier_status napier_check_text_buffer(napier_context *context, const char *name, const napier_text_buffer *buffer) {
    NAPIER_REFUSE_IF(context, buffer == NULL, "%s: NULL", name);
    NAPIER_REFUSE_IF(context, buffer->capacity < buffer->size || (buffer->bytes == NULL && buffer->capacity > 0),
                     "%s: size %zu, capacity %zu%s", name, buffer->size, buffer->capacity,
                     buffer->bytes ? "" : ", bytes NULL");
    return NAPIER_OK;
}

void napier_token_buffer_free(napier_context *context, napier_token_buffer *buffer) {
    if (context != NULL && buffer != NULL) {
        napier_free(&context->allocator, buffer->ids);
        *buffer = (napier_token_buffer){0};
    }
}

void napier_text_buffer_free(napier_context *context, napier_text_buffer *buffer) {
    if (context != NULL && buffer != NULL) {
        napier_free(&context->allocator, buffer->bytes);
        *buffer = (napier_text_buffer){0};
    }
}
