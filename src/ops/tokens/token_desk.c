/* ops/tokens/token_desk.c - rows of tokens in work, and the z of their chosen ids. */
#include "core/base/sizes.h"
#include "ops/tokens/token_call.h"

int64_t napier_token_id(const napier_token_call *call, int64_t row, int64_t k) {
    return napier_index_at(call->ids, row * call->per_row + k);
}

int64_t napier_token_kept(const napier_token_call *call, int64_t row) {
    const uint8_t *keep = napier_token_keep(&call->rules, row, 0);
    int64_t kept = keep ? 0 : call->cols;
    for (int64_t j = 0; keep && j < call->cols; j++) {
        kept += keep[j] != 0;
    }
    return kept;
}

napier_token_seen **napier_token_desks(napier_memory *memory, const napier_token_call *call, int workers,
                                       int64_t rows) {
    enum { LINE = 64 }; /* workers write to cache lines of their own */
    const int64_t k = call->chosen ? call->per_row : 0, top = call->wants.top_k;
    const int64_t seen_bytes = napier_round_up(rows * (int64_t)sizeof(napier_token_seen), LINE);
    const int64_t integers = napier_round_up(2 * rows * k * (int64_t)sizeof(int64_t), LINE);
    const int64_t tops = napier_round_up(rows * top * (int64_t)sizeof(napier_token_top), LINE);
    const int64_t floats = napier_round_up(rows * k * (int64_t)sizeof(float), LINE);
    char *at = napier_take(memory, workers, (size_t)(seen_bytes + integers + tops + floats));
    napier_token_seen **const desks = napier_take(memory, workers, sizeof(void *));
    for (int w = 0; !memory->missing && w < workers; w++, at += seen_bytes + integers + tops + floats) {
        int64_t *const ids = (int64_t *)(void *)(at + seen_bytes);
        napier_token_top *const best = (napier_token_top *)(void *)(at + seen_bytes + integers);
        float *const chosen = (float *)(void *)(at + seen_bytes + integers + tops);
        desks[w] = (napier_token_seen *)(void *)at;
        for (int64_t r = 0; r < rows; r++) {
            desks[w][r] = (napier_token_seen){.ids = ids + 2 * r * k,
                                              .before = ids + (2 * r + 1) * k,
                                              .chosen = chosen + r * k,
                                              .top = best + r * top};
            napier_token_seen_start(&desks[w][r], &call->wants);
        }
    }
    return memory->missing ? NULL : desks;
}

void napier_token_start_ids(const napier_token_call *call, int64_t row, napier_token_seen *seen) {
    napier_token_seen_start(seen, &call->wants);
    for (int64_t k = 0; call->chosen && k < call->per_row; k++) {
        seen->ids[k] = napier_token_id(call, row, k);
    }
}

/* Collects the logits of chosen ids, some at a time, and converts them to z. */
void napier_token_start(const napier_token_call *call, const napier_token_kernels *kernels, napier_const_matrix x,
                        int64_t row, napier_token_seen *seen) {
    enum { SOME = 64 };
    const size_t size = napier_dtype_size(x.dtype);
    const uint8_t *keep = napier_token_keep(&call->rules, row, 0);
    napier_token_start_ids(call, row, seen);
    for (int64_t k = 0; call->chosen && k < call->per_row; k += SOME) {
        const int64_t n = napier_least(call->per_row - k, SOME);
        char logits[SOME * sizeof(float)];
        uint8_t kept[SOME] = {0};
        memset(logits, 0, sizeof logits);
        for (int64_t i = 0; i < n; i++) {
            const int64_t id = seen->ids[k + i], j = napier_token_ignored(call, id) ? 0 : id;
            if (call->cols > 0) {
                memcpy(logits + (size_t)i * size,
                       (const char *)x.data + (row * x.row_stride + j * x.col_stride) * (int64_t)size, size);
                kept[i] = keep ? keep[j] : 1;
            }
        }
        kernels->token_z(&call->rules, logits, x.dtype, 1, keep ? kept : NULL, n, seen->chosen + k);
        for (int64_t i = k; i < k + n; i++) {
            seen->chosen[i] = napier_token_ignored(call, seen->ids[i]) ? INFINITY : seen->chosen[i];
        }
    }
}
