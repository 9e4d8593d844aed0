/* fuzz_attention - views of any strides and options of any offsets: what is accepted writes its results and nothing else,
 * with the same bits for every instruction set; results that meet themselves or an input are not accepted. */
#include "fuzz.h"

enum { ARENA = 1 << 14, FARTHEST = 30, SEQUENCES = 4 };

static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_F64};

static napier_heads take_heads(input *in, unsigned char *arena, int64_t tokens, int64_t heads, int64_t dim) {
    napier_heads h = {.tokens = tokens, .heads = heads, .dim = dim};
    const unsigned kind = take(in);
    h.dtype = dtypes[kind % 16 == 15 ? 3 : kind % 3];
    h.dim_stride = kind % 4 ? 1 : take_within(in, 3);
    h.head_stride = kind & 16 ? dim : take_within(in, FARTHEST);
    h.token_stride = kind & 32 ? heads * dim : take_within(in, FARTHEST);
    h.data = arena + 16 * (120 + take_below(in, ARENA / 16 - 300)) + (kind & 64 ? take(in) : 0);
    return h;
}

static napier_const_heads read_only(napier_heads h) {
    return (napier_const_heads){h.data, h.tokens, h.heads, h.dim, h.token_stride, h.head_stride, h.dim_stride, h.dtype};
}

static bool visit(napier_heads h, const unsigned char *arena, unsigned char *visits) {
    return fuzz_visit(h.data, h.dtype, (const int64_t[]){h.tokens, h.heads, h.dim},
                      (const int64_t[]){h.token_stride, h.head_stride, h.dim_stride}, arena, visits);
}

/* Offsets may be any number: the sum wraps. */
static int64_t plus(int64_t offset, int64_t more) { return (int64_t)((uint64_t)offset + (uint64_t)more); }

static void take_offsets(input *in, int64_t *offsets, int64_t count, int64_t most) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t before = i > 0 ? offsets[i - 1] : 0;
        const unsigned kind = take(in);
        offsets[i] = kind % 16 == 15 ? (int64_t)take_bytes(in, 8) : kind % 16 == 14 ? most : plus(before, kind % 3);
    }
}

FUZZ(in) {
    static _Alignas(64) unsigned char arena[ARENA], before[ARENA], scalar[ARENA];
    unsigned char written[ARENA] = {0}, inputs[ARENA] = {0};
    int64_t queries[SEQUENCES + 1], keys[SEQUENCES + 1], begin[SEQUENCES], end[SEQUENCES];
    for (int i = 0; i < ARENA; i++) {
        arena[i] = (unsigned char)(i * 37 + i / 251);
    }
    const int64_t tokens = take_below(&in, 6), rows = take_below(&in, 9), heads = 1 + take_below(&in, 2);
    const int64_t group = 1 + take_below(&in, 3), dim = 1 + take_below(&in, 5), v_dim = 1 + take_below(&in, 4);
    const napier_heads q = take_heads(&in, arena, tokens, heads * group, dim),
                       k = take_heads(&in, arena, rows, heads, dim);
    const napier_heads v = take_heads(&in, arena, rows, heads, v_dim);
    const napier_heads out = take_heads(&in, arena, tokens, heads * group, v_dim);
    const napier_matrix none = {.dtype = NAPIER_F32};
    napier_attention_options options = NAPIER_ATTENTION_OPTIONS_INIT;
    options.causal = take(&in) % 2;
    options.scale = (double)take_within(&in, 40) / 16;
    options.sequences = take_below(&in, SEQUENCES + 1);
    take_offsets(&in, queries, SEQUENCES + 1, tokens);
    queries[0] = take(&in) % 16 == 15;
    queries[options.sequences] = take(&in) % 16 == 15 ? queries[options.sequences] : tokens;
    take_offsets(&in, keys, SEQUENCES + 1, rows);
    take_offsets(&in, begin, SEQUENCES, rows);
    for (int i = 0; i < SEQUENCES; i++) {
        end[i] = plus(begin[i], take_within(&in, 2));
    }
    options.query_offsets = queries;
    options.key_offsets = keys;
    options.prefix_begin = take(&in) % 2 ? begin : NULL;
    options.prefix_end = options.prefix_begin ? end : NULL;
    memcpy(before, arena, ARENA);
    for (int fast = 0; fast < 2; fast++) {
        memcpy(arena, before, ARENA);
        napier_context *const context = fuzz_context(fast ? NAPIER_ISA_AUTO : NAPIER_ISA_SCALAR, 1 + fast);
        const napier_status status =
            napier_attention(context, read_only(q), read_only(k), read_only(v), out, none, &options);
        if (status != NAPIER_OK) {
            REQUIRE(memcmp(arena, before, ARENA) == 0, "an error, but something is written");
            REQUIRE(napier_last_error(context)[0] != '\0', "an error without a text");
            return;
        }
        if (!fast) {
            memcpy(scalar, arena, ARENA);
        }
    }
    REQUIRE(memcmp(arena, scalar, ARENA) == 0, "instruction sets differ");
    REQUIRE(!visit(out, arena, written), "the output meets itself");
    visit(q, arena, inputs), visit(k, arena, inputs), visit(v, arena, inputs);
    for (int i = 0; i < ARENA; i++) {
        REQUIRE(!written[i] || !inputs[i], "the output meets an input at byte %d", i);
        REQUIRE(written[i] || arena[i] == before[i], "byte %d is not the output's", i);
    }
}
