/* cli/umap_inflate.c - deflate backwards. Codes are read through a table of their first nine bits; longer ones go on bit by
 * bit, by the counts of each length, which is all a canonical Huffman code needs. */
#include "umap_inflate.h"

#include <string.h>

enum { LONGEST = 15, FAST = 9, LITERALS = 288, DISTANCES = 32 };

typedef struct bits {
    const uint8_t *in, *end;
    uint64_t ahead; /* bits read ahead, the next one lowest */
    int count;      /* how many */
    bool failed;    /* the data ended too early */
} bits;

static void look_ahead(bits *b, int wanted) {
    while (b->count < wanted && b->in < b->end) {
        b->ahead |= (uint64_t)*b->in++ << b->count;
        b->count += 8;
    }
}

static uint32_t take(bits *b, int count) {
    look_ahead(b, count);
    if (b->count < count) {
        b->failed = true;
        return 0;
    }
    const uint32_t value = (uint32_t)(b->ahead & (((uint64_t)1 << count) - 1));
    b->ahead >>= count;
    b->count -= count;
    return value;
}

/* ---- Huffman codes ----------------------------------------------------------------------------------------------- */

typedef struct code {
    uint16_t counts[LONGEST + 1]; /* codes of each length */
    uint16_t symbols[LITERALS];   /* by length, then by value */
    uint16_t fast[1 << FAST];     /* symbol << 4 | length of the code that begins with these bits; 0: it is longer */
} code;

static uint32_t reversed(uint32_t value, int count) {
    uint32_t result = 0;
    for (int i = 0; i < count; i++) {
        result = result << 1 | (value >> i & 1);
    }
    return result;
}

/* False: more codes than there can be. Fewer are allowed (a single distance); their absence is an error when one is read. */
static bool make_code(code *c, const uint8_t *lengths, int count) {
    uint16_t next[LONGEST + 2] = {0};
    uint32_t first[LONGEST + 2] = {0};
    memset(c, 0, sizeof *c);
    for (int i = 0; i < count; i++) {
        c->counts[lengths[i]]++;
    }
    c->counts[0] = 0;
    int32_t left = 1;
    for (int length = 1; length <= LONGEST; length++) {
        left = 2 * left - c->counts[length];
        if (left < 0) {
            return false;
        }
        next[length + 1] = (uint16_t)(next[length] + c->counts[length]);
        first[length + 1] = (first[length] + c->counts[length]) << 1;
    }
    for (int i = 0; i < count; i++) {
        const int length = lengths[i];
        if (length == 0) {
            continue;
        }
        c->symbols[next[length]++] = (uint16_t)i;
        const uint32_t word = reversed(first[length]++, length);
        for (uint32_t at = word; length <= FAST && at < 1 << FAST; at += (uint32_t)1 << length) {
            c->fast[at] = (uint16_t)(i << 4 | length);
        }
    }
    return true;
}

static int decode(bits *b, const code *c) {
    look_ahead(b, LONGEST);
    const uint32_t fast = c->fast[b->ahead & ((1 << FAST) - 1)];
    if (fast != 0 && (int)(fast & 15) <= b->count) {
        b->ahead >>= fast & 15;
        b->count -= (int)(fast & 15);
        return (int)(fast >> 4);
    }
    int word = 0;
    int first = 0;
    int index = 0;
    for (int length = 1; length <= LONGEST; length++) {
        word |= (int)take(b, 1);
        const int count = c->counts[length];
        if (b->failed) {
            return -1;
        }
        if (word - count < first) {
            return c->symbols[index + (word - first)];
        }
        index += count;
        first = (first + count) << 1;
        word <<= 1;
    }
    return -1;
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

typedef struct inflater {
    bits bits;
    uint8_t *out;
    size_t size, made;
    code literals, distances;
} inflater;

static bool stored_block(inflater *f) {
    bits *const b = &f->bits;
    take(b, b->count & 7);
    const uint32_t size = take(b, 16);
    const uint32_t check = take(b, 16);
    if (b->failed || size != (check ^ 0xffff) || size > f->size - f->made) {
        return false;
    }
    for (uint32_t i = 0; i < size; i++) {
        f->out[f->made++] = (uint8_t)take(b, 8);
    }
    return !b->failed;
}

static bool fixed_codes(inflater *f) {
    uint8_t lengths[LITERALS];
    for (int i = 0; i < LITERALS; i++) {
        lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    }
    bool good = make_code(&f->literals, lengths, LITERALS);
    memset(lengths, 5, 30);
    good = good && make_code(&f->distances, lengths, 30);
    return good;
}

static bool read_codes(inflater *f) {
    static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    bits *const b = &f->bits;
    uint8_t lengths[LITERALS + DISTANCES] = {0};
    const int literals = (int)take(b, 5) + 257;
    const int distances = (int)take(b, 5) + 1;
    const int orders = (int)take(b, 4) + 4;
    if (b->failed || literals > 286 || distances > 30) {
        return false;
    }
    for (int i = 0; i < orders; i++) {
        lengths[order[i]] = (uint8_t)take(b, 3);
    }
    if (b->failed || !make_code(&f->literals, lengths, 19)) {
        return false;
    }
    memset(lengths, 0, sizeof lengths);
    for (int i = 0; i < literals + distances;) {
        const int symbol = decode(b, &f->literals);
        if (symbol < 0 || (symbol == 16 && i == 0)) {
            return false;
        }
        if (symbol < 16) {
            lengths[i++] = (uint8_t)symbol;
            continue;
        }
        const uint8_t value = symbol == 16 ? lengths[i - 1] : 0;
        int repeats = (int)(symbol == 16 ? 3 + take(b, 2) : symbol == 17 ? 3 + take(b, 3) : 11 + take(b, 7));
        if (b->failed || i + repeats > literals + distances) {
            return false;
        }
        for (; repeats > 0; repeats--) {
            lengths[i++] = value;
        }
    }
    return lengths[256] != 0 && make_code(&f->literals, lengths, literals) &&
           make_code(&f->distances, lengths + literals, distances);
}

static bool coded_block(inflater *f) {
    static const uint16_t size_base[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                           31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t size_bits[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                          2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const uint16_t far_base[30] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                          33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                          1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    bits *const b = &f->bits;
    for (;;) {
        const int symbol = decode(b, &f->literals);
        if (symbol < 0 || symbol > 285) {
            return false;
        }
        if (symbol == 256) {
            return true;
        }
        if (symbol < 256) {
            if (f->made == f->size) {
                return false;
            }
            f->out[f->made++] = (uint8_t)symbol;
            continue;
        }
        const size_t size = size_base[symbol - 257] + take(b, size_bits[symbol - 257]);
        const int far = decode(b, &f->distances);
        if (far < 0 || far > 29) {
            return false;
        }
        const size_t distance = far_base[far] + take(b, far < 2 ? 0 : far / 2 - 1);
        if (b->failed || distance > f->made || size > f->size - f->made) {
            return false;
        }
        for (size_t i = 0; i < size; i++, f->made++) {
            f->out[f->made] = f->out[f->made - distance];
        }
    }
}

bool inflate_bytes(const uint8_t *in, size_t in_size, uint8_t *out, size_t out_size) {
    inflater f = {.bits = {.in = in, .end = in + in_size}, .out = out, .size = out_size};
    bool last = false;
    while (!last) {
        last = take(&f.bits, 1) != 0;
        const uint32_t kind = take(&f.bits, 2);
        bool good = false;
        switch (kind) {
        case 0: good = stored_block(&f); break;
        case 1: good = fixed_codes(&f) && coded_block(&f); break;
        case 2: good = read_codes(&f) && coded_block(&f); break;
        default: break;
        }
        if (!good || f.bits.failed) {
            return false;
        }
    }
    return f.made == out_size;
}

uint32_t crc32_bytes(const uint8_t *bytes, size_t size) {
    uint32_t table[256];
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) {
            table[i] = table[i] >> 1 ^ ((table[i] & 1) != 0 ? 0xedb88320U : 0);
        }
    }
    uint32_t sum = 0xffffffffU;
    for (size_t i = 0; i < size; i++) {
        sum = sum >> 8 ^ table[(sum ^ bytes[i]) & 255];
    }
    return ~sum;
}
