/* fuzz_views - the checks of views against counting every byte: does a view meet itself, do two views overlap? */
#include "core/base/view.h"
#include "fuzz.h"

enum { ARENA = 1 << 14, MOST = 9, FARTHEST = 40 };

static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_F64};

/* A view somewhere in the middle of the arena, so that it cannot leave it: 2 * 8 * 40 * 8 bytes each way at most. */
static napier_matrix take_view(input *in, unsigned char *arena) {
    napier_matrix v;
    v.dtype = dtypes[take(in) % 4];
    v.rows = take_below(in, MOST);
    v.cols = take_below(in, MOST);
    v.row_stride = take_within(in, FARTHEST);
    v.col_stride = take_within(in, FARTHEST);
    v.data = arena + ARENA / 2 + take_within(in, 120) * (int64_t)(take(in) & 1 ? 1 : napier_dtype_size(v.dtype));
    return v;
}

static bool visit(napier_matrix v, const unsigned char *arena, unsigned char visits[ARENA]) {
    memset(visits, 0, ARENA);
    return fuzz_visit(v.data, v.dtype, (const int64_t[]){1, v.rows, v.cols},
                      (const int64_t[]){0, v.row_stride, v.col_stride}, arena, visits);
}

static bool same_view(napier_matrix a, napier_matrix b) {
    return a.data == b.data && a.dtype == b.dtype && a.rows == b.rows && a.cols == b.cols &&
           (a.rows <= 1 || a.row_stride == b.row_stride) && (a.cols <= 1 || a.col_stride == b.col_stride);
}

static bool aligned(napier_matrix v) {
    return v.rows == 0 || v.cols == 0 || (uintptr_t)v.data % napier_dtype_size(v.dtype) == 0;
}

FUZZ(in) {
    static _Alignas(64) unsigned char arena[ARENA];
    static unsigned char first[ARENA], second[ARENA];
    napier_context *const context = fuzz_context(NAPIER_ISA_SCALAR, 1);
    const napier_matrix a = take_view(&in, arena), b = take(&in) % 8 ? take_view(&in, arena) : a;
    const bool twice = visit(a, arena, first);
    visit(b, arena, second);
    const napier_status checked = napier_check_matrix(context, "a", napier_read_only(a));
    REQUIRE((checked == NAPIER_OK) == aligned(a), "%s", napier_last_error(context));
    if (checked != NAPIER_OK || napier_check_matrix(context, "b", napier_read_only(b)) != NAPIER_OK) {
        return;
    }
    const napier_status alone = napier_check_matrix_out(context, "a", a);
    REQUIRE((alone == NAPIER_OK) == !twice, "%s", napier_last_error(context));
    if (twice) {
        return;
    }
    bool shared = false;
    for (int i = 0; i < ARENA; i++) {
        shared = shared || (first[i] && second[i]);
    }
    const napier_status together = napier_check_alias(context, "a", a, "b", napier_read_only(b));
    REQUIRE((together == NAPIER_OK) == (!shared || same_view(a, b)), "shared %d, status %d: %s", shared, (int)together,
            napier_last_error(context));
}
