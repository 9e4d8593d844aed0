/* ops/softmax/state/state_format.h - where the fields of a state's byte form are (state_bytes.c), also for a GPU. */
#ifndef NAPIER_OPS_SOFTMAX_STATE_STATE_FORMAT_H
#define NAPIER_OPS_SOFTMAX_STATE_STATE_FORMAT_H

enum {
    NAPIER_STATE_FLAGS_AT = 8 + 4 * 4 + 8 + 3 * 4,
    NAPIER_STATE_HEADER = NAPIER_STATE_FLAGS_AT + 4 + 3 * 8, /* up to the maximum, which depends on the elements */
    NAPIER_STATE_FIELDS = NAPIER_STATE_HEADER + 8,
    NAPIER_STATE_CHECKSUM = 8
};

#endif
