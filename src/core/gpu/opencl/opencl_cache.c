/* core/gpu/opencl/opencl_cache.c - compiled kernels on the disk: one file for each, which is read only if it is whole and was
 * made from the same text, by the same driver, with the same options. Whatever is wrong with a file, it is as if it were not
 * there. */
#define _POSIX_C_SOURCE 200809L
#include "core/gpu/opencl/opencl.h"

#if defined(NAPIER_OPENCL)

#include <stdio.h>
#include <string.h>

#include "core/base/output_file.h"
#include "core/base/platform.h"

enum { MOST_BYTES = 64 << 20 };

/* What a file begins with; the program's bytes follow. */
typedef struct cache_head {
    char magic[8];
    napier_opencl_key key;
    uint64_t size, checksum;
} cache_head;

static const char magic[sizeof((cache_head *)0)->magic] = {'N', 'A', 'P', 'I', 'E', 'R', 'C', '1'};

/* FNV-1a */
static uint64_t hash_of(uint64_t hash, const void *bytes, size_t size) {
    for (const unsigned char *p = bytes, *const end = p + size; p < end; p++) {
        hash = (hash ^ *p) * 0x100000001b3;
    }
    return hash;
}

napier_opencl_key napier_opencl_key_of(const char *const *texts, size_t count) {
    napier_opencl_key key = {{0xcbf29ce484222325, 0x9ae16a3b2f90404f}};
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < 2; k++) {
            key.words[k] = hash_of(key.words[k], texts[i], strlen(texts[i]) + 1);
        }
    }
    return key;
}

static bool cache_path(char path[NAPIER_PATH_ROOM], const napier_opencl *cl, const char *name, napier_opencl_key key) {
    const int length =
        snprintf(path, NAPIER_PATH_ROOM, "%s/%s-%016llx.bin", cl->cache, name, (unsigned long long)key.words[0]);
    return cl->cache[0] != '\0' && length > 0 && length < NAPIER_PATH_ROOM;
}

/* The bytes behind the head, or NULL. */
static unsigned char *cache_load(const napier_cuda_context *context, FILE *file, uint64_t file_size,
                                 napier_opencl_key key, size_t *size) {
    cache_head head;
    if (fread(&head, sizeof head, 1, file) != 1 || memcmp(head.magic, magic, sizeof magic) != 0 ||
        memcmp(&head.key, &key, sizeof key) != 0 || head.size == 0 || head.size > MOST_BYTES ||
        file_size != sizeof head + head.size) {
        return NULL;
    }
    unsigned char *const bytes = napier_alloc(&context->host->allocator, head.size, 1);
    if (bytes != NULL &&
        (fread(bytes, head.size, 1, file) != 1 || hash_of(head.key.words[1], bytes, head.size) != head.checksum)) {
        napier_free(&context->host->allocator, bytes);
        return NULL;
    }
    *size = head.size;
    return bytes;
}

unsigned char *napier_opencl_cache_read(const napier_cuda_context *context, const char *name, napier_opencl_key key,
                                        size_t *size) {
    char path[NAPIER_PATH_ROOM];
    struct stat info;
    if (!cache_path(path, context->opencl, name, key) || stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return NULL;
    }
    FILE *const file = fopen(path, "rb");
    unsigned char *const bytes = file ? cache_load(context, file, (uint64_t)info.st_size, key, size) : NULL;
    if (file != NULL) {
        (void)fclose(file);
    }
    return bytes;
}

static bool write_all(int fd, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size > 0) {
        const ssize_t wrote = write(fd, at, size);
        if (wrote <= 0) {
            return false;
        }
        at += wrote;
        size -= (size_t)wrote;
    }
    return true;
}

void napier_opencl_cache_write(const napier_cuda_context *context, const char *name, napier_opencl_key key,
                               cl_program program) {
    char path[NAPIER_PATH_ROOM];
    napier_output_file file;
    size_t size = 0;
    if (!cache_path(path, context->opencl, name, key) ||
        clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) != CL_SUCCESS || size == 0 ||
        size > MOST_BYTES || napier_output_file_place(&file, path) != 0 || !file.is_moved) {
        return;
    }
    unsigned char *bytes = napier_alloc(&context->host->allocator, size, 1);
    if (bytes != NULL && clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, NULL) == CL_SUCCESS &&
        napier_output_file_open(&file) == 0) {
        cache_head head = {.key = key, .size = size, .checksum = hash_of(key.words[1], bytes, size)};
        memcpy(head.magic, magic, sizeof magic);
        if (write_all(file.fd, &head, sizeof head) && write_all(file.fd, bytes, size) &&
            napier_output_file_close(&file) == 0) {
            (void)napier_output_file_move(&file);
        }
    }
    napier_output_file_discard(&file);
    napier_free(&context->host->allocator, bytes);
}

#endif
