/* core/base/status.c - names of the values in napier/types.h, and the versions of the library that is linked. */
#include <napier/types.h>

const char *napier_status_string(napier_status status) {
    switch (status) {
    case NAPIER_OK: return "ok";
    case NAPIER_INVALID_ARGUMENT: return "invalid argument";
    case NAPIER_OUT_OF_MEMORY: return "out of memory";
    case NAPIER_UNSUPPORTED: return "unsupported";
    case NAPIER_STATE_MISMATCH: return "state mismatch";
    case NAPIER_CORRUPT_DATA: return "corrupt data";
    case NAPIER_CANCELLED: return "cancelled";
    case NAPIER_IO_ERROR: return "input or output error";
    case NAPIER_DEVICE_ERROR: return "device error";
    }
    return "unknown status";
}

const char *napier_isa_name(napier_isa isa) {
    switch (isa) {
    case NAPIER_ISA_AUTO: return "auto";
    case NAPIER_ISA_SCALAR: return "scalar";
    case NAPIER_ISA_NEON: return "neon";
    case NAPIER_ISA_AVX2: return "avx2";
    case NAPIER_ISA_AVX512: return "avx512";
    }
    return "unknown";
}

const char *napier_version(void) { return NAPIER_VERSION_STRING; }

int napier_numerics_version(void) { return NAPIER_NUMERICS_VERSION; }
