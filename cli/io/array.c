/* cli/io/array.c - element types and shapes as stored in files. */
#include "array.h"

#include <math.h>
#include <string.h>

int64_t shape_count(const array_shape *shape) {
    const int64_t most = INT64_MAX / 8;
    int64_t nonzero = 1; /* the product without the zeros */
    int64_t count = 1;
    for (int i = 0; i < shape->dims; i++) {
        const int64_t n = shape->dim[i];
        if (n < 0 || (n > 0 && nonzero > most / n)) {
            return -1;
        }
        nonzero *= n > 0 ? n : 1;
        count = n > 0 ? count * n : 0;
    }
    return count;
}

napier_dtype element_dtype(element_type type) {
    return type.kind == ELEMENT_BFLOAT                    ? NAPIER_BF16
           : type.kind == ELEMENT_FLOAT && type.size == 2 ? NAPIER_F16
           : type.kind == ELEMENT_FLOAT && type.size == 4 ? NAPIER_F32
                                                          : NAPIER_F64;
}

bool machine_is_big_endian(void) {
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 0;
}

bool element_is_native(element_type type) {
    return (type.kind == ELEMENT_FLOAT || type.kind == ELEMENT_BFLOAT) && type.big_endian == machine_is_big_endian();
}

void bytes_swap(void *elements, size_t size, int64_t count) {
    unsigned char *bytes = elements;
    for (int64_t i = 0; i < count; i++, bytes += size) {
        for (size_t low = 0, high = size - 1; low < high; low++, high--) {
            const unsigned char kept = bytes[low];
            bytes[low] = bytes[high];
            bytes[high] = kept;
        }
    }
}

/* The stored integer as a double, rounded to nearest. */
static double integer_value(element_type type, const unsigned char *raw) {
    uint64_t bits = 0;
    for (size_t i = 0; i < type.size; i++) {
        bits = bits << 8 | raw[type.big_endian ? i : type.size - 1 - i];
    }
    if (type.kind == ELEMENT_BOOL) {
        return bits != 0 ? 1.0 : 0.0;
    }
    if (type.kind == ELEMENT_UINT) {
        return (double)bits;
    }
    const uint64_t sign = (uint64_t)1 << (8 * type.size - 1);
    /* A negative number is -(2^k - bits); the magnitude fits 64 bits without a sign. */
    return (bits & sign) == 0 ? (double)bits : -(double)(sign - (bits - sign));
}

void elements_convert(element_type type, const void *raw, void *out, int64_t count) {
    if (type.kind == ELEMENT_FLOAT || type.kind == ELEMENT_BFLOAT) {
        if (raw != out) {
            memmove(out, raw, (size_t)count * type.size);
        }
        if (!element_is_native(type)) {
            bytes_swap(out, type.size, count);
        }
        return;
    }
    /* Goes from front to back: element i is read before the 8 bytes of result i are written. They end where raw element
     * i + 1 begins, or before. */
    const unsigned char *from = raw;
    unsigned char *to = out;
    for (int64_t i = 0; i < count; i++) {
        const double value = integer_value(type, from);
        memcpy(to, &value, sizeof value);
        from += type.size;
        to += sizeof value;
    }
}

static double f16_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    double magnitude;
    if (exponent == 31) {
        magnitude = fraction != 0 ? (double)NAN : (double)INFINITY;
    } else {
        magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    }
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

double element_value(napier_dtype dtype, const void *element) {
    if (dtype == NAPIER_F64) {
        double value;
        memcpy(&value, element, sizeof value);
        return value;
    }
    if (dtype == NAPIER_F32) {
        float value;
        memcpy(&value, element, sizeof value);
        return (double)value;
    }
    uint16_t bits;
    memcpy(&bits, element, sizeof bits);
    if (dtype == NAPIER_F16) {
        return f16_value(bits);
    }
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}
