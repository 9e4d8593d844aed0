/* cli/umap_inflate.h - raw deflate data (RFC 1951), as zip archives hold it. Reads nothing outside `in`, writes nothing
 * outside `out`, allocates nothing: a fuzzer may call it. */
#ifndef NAPIER_CLI_UMAP_INFLATE_H
#define NAPIER_CLI_UMAP_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether `in` is deflate data for exactly `out_size` bytes, which are then in `out`. */
bool inflate_bytes(const uint8_t *in, size_t in_size, uint8_t *out, size_t out_size);

/* The checksum of zip archives (CRC-32, polynomial edb88320). */
uint32_t crc32_bytes(const uint8_t *bytes, size_t size);

#endif
