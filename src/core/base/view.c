/* core/base/view.c - dtypes, and the checks of arguments: views, whether two views overlap, ids and offsets.
 *
 * Overlap is a question about integers. Elements of two views, here with two axes each, share a byte if
 *
 *     A.start + i * A.row + j * A.col + u  =  B.start + k * B.row + l * B.col + v
 *
 * has a solution with every index in its range, where u and v count bytes within an element. With the indices of B
 * reversed (k -> rows - 1 - k) all coefficients are positive, and the question becomes: is there an x with
 *
 *     sum_t step[t] * x[t] = distance,   0 <= x[t] <= most[t] ?
 *
 * Terms with the same step are joined to one term. So are two terms if the finer one fills the gaps of the
 * coarser one, as in a contiguous row, or in rows that follow one another. In nearly every real case this leaves
 * one or two terms, which are decided in closed form. Otherwise the coarsest steps are searched. After
 * SEARCH_LIMIT tries the search stops and the answer is "overlaps". Only views of one array with three unrelated
 * strides and very many rows reach that limit. */
#include "core/base/view.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/scope.h"

enum { MAX_TERMS = 7, SEARCH_LIMIT = 1 << 16 };

size_t napier_dtype_size(napier_dtype dtype) {
    switch (dtype) {
    case NAPIER_F32: return 4;
    case NAPIER_F16:
    case NAPIER_BF16: return 2;
    case NAPIER_F64: return 8;
    }
    return 0;
}

const char *napier_dtype_name(napier_dtype dtype) {
    switch (dtype) {
    case NAPIER_F32: return "f32";
    case NAPIER_F16: return "f16";
    case NAPIER_BF16: return "bf16";
    case NAPIER_F64: return "f64";
    }
    return "unknown";
}

/* ---- One view -------------------------------------------------------------------------------------------------- */

typedef struct axes {
    int count;
    int64_t size[3], stride[3];
} axes;

static axes axes_of(const napier_argument *a) {
    const napier_const_matrix v = a->view;
    return (axes){
        a->is & NAPIER_IS_HEADS ? 3 : 2, {v.rows, v.cols, a->dim}, {v.row_stride, v.col_stride, a->dim_stride}};
}

static size_t element_of(const napier_argument *a) {
    return a->element != 0 ? a->element : napier_dtype_size(a->view.dtype);
}

static int is_empty(const axes *x) { return x->size[0] == 0 || x->size[1] == 0 || (x->count > 2 && x->size[2] == 0); }

/* The bytes of a view with at least one element: [first, last], and for each axis its step in bytes, without the sign,
 * and its last index. An axis of one element has step 0. */
typedef struct extent {
    uintptr_t first, last;
    uint64_t step[3], most[3];
} extent;

static uint64_t magnitude(int64_t x) { return x < 0 ? 0 - (uint64_t)x : (uint64_t)x; }

/* a * b <= limit without overflow. */
static int product_fits(uint64_t a, uint64_t b, uint64_t limit) { return a == 0 || b <= limit / a; }

/* 0 if an offset does not fit a ptrdiff_t or an address overflows. */
static int find_extent(const napier_argument *a, extent *e) {
    const axes x = axes_of(a);
    const uint64_t size = element_of(a), limit = (uint64_t)PTRDIFF_MAX, at = (uintptr_t)a->view.data;
    uint64_t below = 0, above = size - 1;
    *e = (extent){.first = 0};
    for (int d = 0; d < x.count; d++) {
        const uint64_t stride = magnitude(x.stride[d]), most = (uint64_t)x.size[d] - 1;
        e->most[d] = most;
        if (most == 0) {
            continue;
        }
        if (!product_fits(stride, size, limit) || !product_fits(most, stride * size, limit)) {
            return 0;
        }
        uint64_t *const side = x.stride[d] < 0 ? &below : &above;
        e->step[d] = stride * size;
        *side += most * e->step[d];
        if (*side > limit) {
            return 0;
        }
    }
    if (below + above >= limit || below > at || above > (uint64_t)UINTPTR_MAX - at) {
        return 0;
    }
    e->first = (uintptr_t)(at - below);
    e->last = (uintptr_t)(at + above);
    return 1;
}

/* The names of the axes and of their strides in messages. */
typedef struct words {
    const char *size[3], *stride[2], *row;
} words;

static const words *words_of(const napier_argument *a) {
    static const words matrix = {{"rows", "cols", ""}, {"row_stride", "col_stride"}, "row"};
    static const words vector = {{"size", "size", ""}, {"stride", "stride"}, "element"};
    static const words heads = {{"tokens", "heads", "dim"}, {"", ""}, ""};
    return a->is & NAPIER_IS_VECTOR ? &vector : a->is & NAPIER_IS_HEADS ? &heads : &matrix;
}

static napier_status leaves_memory(napier_context *context, const napier_argument *a) {
    const napier_const_matrix v = a->view;
    NAPIER_REFUSE_IF(context, a->is & NAPIER_IS_VECTOR,
                     "%s: size %" PRId64 " with stride %" PRId64 " leaves the address space", a->name, v.rows * v.cols,
                     v.rows > 1 ? v.row_stride : v.col_stride);
    NAPIER_REFUSE_IF(context, a->is & NAPIER_IS_HEADS,
                     "%s: shape %" PRId64 " x %" PRId64 " x %" PRId64 " with strides %" PRId64 ", %" PRId64 ", %" PRId64
                     " leaves the address space",
                     a->name, v.rows, v.cols, a->dim, v.row_stride, v.col_stride, a->dim_stride);
    return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                       "%s: shape %" PRId64 " x %" PRId64 " with row_stride %" PRId64 " and col_stride %" PRId64
                       " leaves the address space",
                       a->name, v.rows, v.cols, v.row_stride, v.col_stride);
}

static napier_status check_view(napier_context *context, const napier_argument *a) {
    const napier_const_matrix view = a->view;
    const axes x = axes_of(a);
    NAPIER_REFUSE_IF(context, napier_dtype_size(view.dtype) == 0, "%s: dtype %d is not a dtype", a->name,
                     (int)view.dtype);
    for (int d = 0; d < x.count; d++) {
        NAPIER_REFUSE_IF(context, x.size[d] < 0, "%s: %s %" PRId64 " is negative", a->name, words_of(a)->size[d],
                         x.size[d]);
    }
    if (is_empty(&x)) {
        return NAPIER_OK;
    }
    NAPIER_REFUSE_IF(context, x.count == 2 && !product_fits((uint64_t)view.rows, (uint64_t)view.cols, INT64_MAX),
                     "%s: rows %" PRId64 " times cols %" PRId64 " does not fit 64 bits", a->name, view.rows, view.cols);
    NAPIER_REFUSE_IF(context, view.data == NULL && x.count == 2,
                     "%s: data is NULL, but the view has %" PRId64 " elements", a->name, view.rows * view.cols);
    if (view.data == NULL) { /* their number need not fit 64 bits */
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: data is NULL, but the view has elements", a->name);
    }
    NAPIER_REFUSE_IF(context, (uintptr_t)view.data % element_of(a) != 0,
                     "%s: data %p is not aligned to its %s elements", a->name, view.data,
                     napier_dtype_name(view.dtype));
    extent e;
    return find_extent(a, &e) ? NAPIER_OK : leaves_memory(context, a);
}

static uint64_t gcd(uint64_t a, uint64_t b) {
    while (b != 0) {
        const uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Elements (i, j) and (k, l) coincide if (i - k) * row_stride = (l - j) * col_stride. The smallest solution that is not
 * 0 is a step of col_stride / g rows and row_stride / g columns, with g their greatest common divisor. No two elements
 * coincide if that step leads out of the view. */
static int matrix_meets_itself(napier_const_matrix view) {
    const uint64_t row = magnitude(view.row_stride), col = magnitude(view.col_stride);
    const uint64_t rows = (uint64_t)view.rows, cols = (uint64_t)view.cols;
    if (cols <= 1) {
        return rows > 1 && row == 0;
    }
    if (rows <= 1) {
        return col == 0;
    }
    if (row == 0 || col == 0) {
        return 1;
    }
    const uint64_t g = gcd(row, col);
    return col / g < rows && row / g < cols;
}

/* With three axes, each must step over the whole extent of all axes with shorter steps. */
static int heads_meet(const napier_argument *a) {
    extent e;
    uint64_t reach = 0;
    int done[3] = {0, 0, 0};
    if (!find_extent(a, &e)) {
        return 1;
    }
    for (int i = 0; i < 3; i++) {
        int least = -1;
        for (int d = 0; d < 3; d++) {
            least = !done[d] && (least < 0 || e.step[d] < e.step[least]) ? d : least;
        }
        if (e.most[least] > 0 && e.step[least] <= reach) {
            return 1;
        }
        reach += e.most[least] * e.step[least];
        done[least] = 1;
    }
    return 0;
}

static napier_status check_distinct(napier_context *context, const napier_argument *a) {
    const napier_const_matrix view = a->view;
    const words *const word = words_of(a);
    const axes x = axes_of(a);
    if (is_empty(&x) || !(x.count == 2 ? matrix_meets_itself(view) : heads_meet(a))) {
        return NAPIER_OK;
    }
    NAPIER_REFUSE_IF(context, x.count > 2,
                     "%s: strides %" PRId64 ", %" PRId64 ", %" PRId64 " let elements of %" PRId64 " x %" PRId64
                     " x %" PRId64 " overlap",
                     a->name, x.stride[0], x.stride[1], x.stride[2], x.size[0], x.size[1], x.size[2]);
    NAPIER_REFUSE_IF(context, view.cols > 1 && view.col_stride == 0, "%s: %s 0 writes every element to one place",
                     a->name, word->stride[1]);
    NAPIER_REFUSE_IF(context, view.row_stride == 0, "%s: %s 0 writes every %s to one place", a->name, word->stride[0],
                     word->row);
    NAPIER_REFUSE_IF(context, magnitude(view.col_stride) == 1,
                     "%s: row_stride %" PRId64 " is less than cols %" PRId64 ", so that its rows overlap", a->name,
                     view.row_stride, view.cols);
    NAPIER_REFUSE_IF(context, magnitude(view.row_stride) == 1,
                     "%s: col_stride %" PRId64 " is less than rows %" PRId64 ", so that its columns overlap", a->name,
                     view.col_stride, view.rows);
    return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                       "%s: row_stride %" PRId64 " and col_stride %" PRId64 " put two elements of %" PRId64
                       " x %" PRId64 " in one place",
                       a->name, view.row_stride, view.col_stride, view.rows, view.cols);
}

/* ---- Two views ------------------------------------------------------------------------------------------------- */

typedef struct term {
    uint64_t step, most;
} term;

/* Terms, sorted from the coarsest step to the finest: every step > 0 and most > 0, no two steps equal. The largest
 * possible sum fits 64 bits, because it is at most the bytes of both views. */
typedef struct sum {
    term terms[MAX_TERMS];
    int count;
} sum;

static void add_term(sum *s, uint64_t step, uint64_t most) {
    if (step == 0 || most == 0) {
        return;
    }
    int at = 0;
    while (at < s->count && s->terms[at].step > step) {
        at++;
    }
    if (at < s->count && s->terms[at].step == step) {
        s->terms[at].most += most;
        return;
    }
    for (int t = s->count; t > at; t--) {
        s->terms[t] = s->terms[t - 1];
    }
    s->terms[at] = (term){step, most};
    s->count++;
}

/* Steps 2 (5 of them) and 6 (1 of them) give 0 2 4 .. 10 and 6 8 .. 16: together 0 2 4 .. 16. */
static void merge_terms(sum *s) {
    for (int t = s->count - 1; t > 0;) {
        const term fine = s->terms[t], coarse = s->terms[t - 1];
        if (coarse.step % fine.step == 0 && coarse.step / fine.step <= fine.most + 1) {
            s->terms[t - 1] = (term){fine.step, fine.most + coarse.step / fine.step * coarse.most};
            for (int u = t; u < s->count - 1; u++) {
                s->terms[u] = s->terms[u + 1];
            }
            s->count--;
            t = s->count - 1; /* the longer term may now fill gaps that it did not fill before */
        } else {
            t--;
        }
    }
}

/* a * b mod m, for a, b < m < 2^63. */
static uint64_t multiply_modulo(uint64_t a, uint64_t b, uint64_t m) {
    if (product_fits(a, b, UINT64_MAX)) {
        return a * b % m;
    }
    uint64_t product = 0;
    for (; b != 0; b >>= 1) {
        if (b & 1) {
            product = (product + a) % m;
        }
        a = (a + a) % m;
    }
    return product;
}

/* The inverse of a modulo m, for coprime a < m (extended Euclid); 0 where m is 1. */
static uint64_t inverse_modulo(uint64_t a, uint64_t m) {
    uint64_t r0 = m, r1 = a % m, t0 = 0, t1 = 1 % m;
    while (r1 != 0) {
        const uint64_t q = r0 / r1, r2 = r0 - q * r1;
        const uint64_t qt = multiply_modulo(q % m, t1, m), t2 = t0 >= qt ? t0 - qt : t0 + (m - qt);
        r0 = r1;
        r1 = r2;
        t0 = t1;
        t1 = t2;
    }
    return t0;
}

/* Whether a.step * x + b.step * y = distance has a solution; 0 <= distance <= the largest sum. x is known modulo b.step
 * / g. Its range follows from the largest y and from 0. */
static int two_terms_reach(term a, term b, uint64_t distance) {
    const uint64_t g = gcd(a.step, b.step);
    if (distance % g != 0) {
        return 0;
    }
    const uint64_t step = a.step / g, m = b.step / g, target = distance / g, rest = m * b.most;
    const uint64_t least = target <= rest ? 0 : (target - rest - 1) / step + 1;
    const uint64_t most = target / step < a.most ? target / step : a.most;
    if (least > most) {
        return 0;
    }
    const uint64_t x = multiply_modulo(target % m, inverse_modulo(step % m, m), m);
    const uint64_t ahead = x >= least % m ? x - least % m : x + (m - least % m);
    return ahead <= most - least;
}

/* Can the sum reach the distance? `tries` counts down; at 0 the answer is yes. */
static int sum_reaches(const term *terms, int count, uint64_t distance, int *tries) {
    uint64_t rest = 0; /* the most that all terms but the first can add */
    for (int t = 1; t < count; t++) {
        rest += terms[t].step * terms[t].most;
    }
    if (count == 0) {
        return distance == 0;
    }
    const term first = terms[0];
    if (distance > rest && distance - rest > first.step * first.most) {
        return 0;
    }
    if (count == 1) {
        return distance % first.step == 0;
    }
    if (count == 2) {
        return two_terms_reach(first, terms[1], distance);
    }

    /* All terms but the finest are multiples of their common divisor, so modulo that divisor the finest alone must
     * reach the distance. Interleaved rows fail here. */
    uint64_t common = 0;
    for (int t = 0; t < count - 1; t++) {
        common = gcd(common, terms[t].step);
    }
    const term fine = terms[count - 1];
    if (common > 0 && common % fine.step == 0 && distance % common > fine.step * fine.most) {
        return 0;
    }
    const uint64_t least = distance <= rest ? 0 : (distance - rest - 1) / first.step + 1;
    const uint64_t most = distance / first.step < first.most ? distance / first.step : first.most;
    for (uint64_t x = least; x <= most; x++) {
        if (--*tries < 0 || sum_reaches(terms + 1, count - 1, distance - x * first.step, tries)) {
            return 1;
        }
    }
    return 0;
}

static int share_a_byte(const napier_argument *a, const napier_argument *b) {
    const axes xa = axes_of(a), xb = axes_of(b);
    extent ea, eb;
    if (is_empty(&xa) || is_empty(&xb) || !find_extent(a, &ea) || !find_extent(b, &eb)) {
        return 0; /* the last two results cannot occur: both views have been checked */
    }
    if (ea.last < eb.first || eb.last < ea.first) {
        return 0;
    }
    sum s = {.count = 0};
    for (int d = 0; d < 3; d++) {
        add_term(&s, ea.step[d], ea.most[d]);
        add_term(&s, eb.step[d], eb.most[d]);
    }
    add_term(&s, 1, element_of(a) + element_of(b) - 2);
    merge_terms(&s);
    int tries = SEARCH_LIMIT;
    return sum_reaches(s.terms, s.count, eb.last - ea.first, &tries);
}

/* A stride does not matter along an axis of at most one element. */
static int same_view(const napier_argument *a, const napier_argument *b) {
    const axes x = axes_of(a), y = axes_of(b);
    int same = a->view.data == b->view.data && a->view.dtype == b->view.dtype && x.count == y.count;
    for (int d = 0; d < x.count && same; d++) {
        same = x.size[d] == y.size[d] && (x.size[d] <= 1 || x.stride[d] == y.stride[d]);
    }
    return same;
}

static napier_status check_overlap(napier_context *context, const napier_argument *out, const napier_argument *other) {
    const int may_be_same = (other->is & NAPIER_MAY_BE_OUT) != 0;
    if ((may_be_same && same_view(out, other)) || !share_a_byte(out, other)) {
        return NAPIER_OK;
    }
    return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: data %p overlaps %s at %p%s", out->name, out->view.data,
                       other->name, other->view.data,
                       may_be_same ? ", and is not the same view (same data, dtype and strides)" : "");
}

/* ---- The arguments of a call ------------------------------------------------------------------------------------- */

static napier_status check_shape(napier_context *context, const napier_argument *a) {
    const napier_const_matrix view = a->view;
    const int heads = (a->is & NAPIER_IS_HEADS) != 0;
    if (view.rows == a->rows && view.cols == a->cols && (!heads || a->dim == a->dims)) {
        return NAPIER_OK;
    }
    NAPIER_REFUSE_IF(context, a->is & NAPIER_IS_VECTOR, "%s: size %" PRId64 " is not %" PRId64, a->name,
                     view.rows * view.cols, a->rows * a->cols);
    NAPIER_REFUSE_IF(context, heads,
                     "%s: shape %" PRId64 " x %" PRId64 " x %" PRId64 " is not %" PRId64 " x %" PRId64 " x %" PRId64,
                     a->name, view.rows, view.cols, a->dim, a->rows, a->cols, a->dims);
    return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                       "%s: shape %" PRId64 " x %" PRId64 " is not %s%s%s%" PRId64 " x %" PRId64, a->name, view.rows,
                       view.cols, a->like ? "that of " : "", a->like ? a->like : "", a->like ? ", " : "", a->rows,
                       a->cols);
}

static napier_status check_argument(napier_context *context, const napier_argument *a) {
    NAPIER_TRY(check_view(context, a));
    NAPIER_REFUSE_IF(context, (a->is & NAPIER_IS_NARROW) && a->view.dtype == NAPIER_F64,
                     "%s: dtype f64 is not f32, f16 or bf16", a->name);
    NAPIER_REFUSE_IF(context, (a->is & NAPIER_IS_F32) && a->view.dtype != NAPIER_F32, "%s: dtype %s is not f32",
                     a->name, napier_dtype_name(a->view.dtype));
    NAPIER_TRY(check_shape(context, a));
    return a->is & NAPIER_IS_OUT ? check_distinct(context, a) : NAPIER_OK;
}

static int is_absent(const napier_argument *a) { return (a->is & NAPIER_MAY_BE_ABSENT) && !a->view.data; }

napier_status napier_check_arguments(napier_context *context, const napier_argument *all, size_t count) {
    for (size_t i = 0; i < count; i++) {
        NAPIER_TRY(is_absent(&all[i]) ? NAPIER_OK : check_argument(context, &all[i]));
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            const int checked = j > i && (all[j].is & NAPIER_IS_OUT); /* when j was the output */
            if (i != j && !checked && (all[i].is & NAPIER_IS_OUT) && !is_absent(&all[i]) && !is_absent(&all[j])) {
                NAPIER_TRY(check_overlap(context, &all[i], &all[j]));
            }
        }
    }
    return NAPIER_OK;
}

static napier_argument matrix_argument(const char *name, napier_const_matrix view, unsigned is) {
    return (napier_argument){.name = name, .view = view, .is = is, .rows = view.rows, .cols = view.cols};
}

napier_status napier_check_matrix(napier_context *context, const char *name, napier_const_matrix view) {
    const napier_argument in = matrix_argument(name, view, 0);
    return check_argument(context, &in);
}

napier_status napier_check_vector(napier_context *context, const char *name, napier_const_vector view) {
    const napier_argument in = napier_row_argument(name, view, 0, view.size);
    return check_argument(context, &in);
}

napier_status napier_check_matrix_out(napier_context *context, const char *name, napier_matrix view) {
    const napier_argument out = matrix_argument(name, napier_read_only(view), NAPIER_IS_OUT);
    return check_argument(context, &out);
}

napier_status napier_check_vector_out(napier_context *context, const char *name, napier_vector view) {
    const napier_argument out = napier_row_argument(name, napier_read_only_vector(view), NAPIER_IS_OUT, view.size);
    return check_argument(context, &out);
}

napier_status napier_check_alias(napier_context *context, const char *out_name, napier_matrix out, const char *in_name,
                                 napier_const_matrix in) {
    const napier_argument written = matrix_argument(out_name, napier_read_only(out), NAPIER_IS_OUT);
    const napier_argument read = matrix_argument(in_name, in, NAPIER_MAY_BE_OUT);
    return check_overlap(context, &written, &read);
}

napier_status napier_check_tokens(napier_context *context, const char *name, napier_const_vector v, int64_t size,
                                  bool optional) {
    const napier_argument in =
        napier_row_argument(name, v, NAPIER_IS_NARROW | (optional ? NAPIER_MAY_BE_ABSENT : 0u), size);
    return napier_check_arguments(context, &in, 1);
}

/* ---- Ids and offsets --------------------------------------------------------------------------------------------- */

napier_status napier_check_indices(napier_context *context, const char *name, napier_indices indices) {
    NAPIER_REFUSE_IF(context, indices.type != NAPIER_I32 && indices.type != NAPIER_I64,
                     "%s: type %d is no type of index", name, (int)indices.type);
    return napier_check_vector(context, name, napier_indices_bytes(indices));
}

napier_status napier_check_offset_count(napier_context *context, const char *name, napier_indices offsets) {
    NAPIER_TRY(napier_check_indices(context, name, offsets));
    NAPIER_REFUSE_IF(context, offsets.size < 1, "%s: size 0, but B responses have B + 1 offsets", name);
    return NAPIER_OK;
}

napier_status napier_check_offsets_of(napier_context *context, const char *name, napier_indices offsets,
                                      int64_t tokens) {
    NAPIER_TRY(napier_check_offset_count(context, name, offsets));
    int64_t before = 0;
    for (int64_t i = 0; i < offsets.size; i++) {
        const int64_t at = napier_index_at(offsets, i);
        NAPIER_REFUSE_IF(context, i == 0 && at != 0, "%s: %s[0] is %" PRId64 ", not 0", name, name, at);
        NAPIER_REFUSE_IF(context, at < before, "%s: %s[%" PRId64 "] is %" PRId64 ", less than %" PRId64 " before it",
                         name, name, i, at, before);
        before = at;
    }
    NAPIER_REFUSE_IF(context, before != tokens,
                     "%s: %s[%" PRId64 "] is %" PRId64 ", not the number of tokens, %" PRId64, name, name,
                     offsets.size - 1, before, tokens);
    return NAPIER_OK;
}

napier_status napier_check_offsets_on(napier_context *context, napier_place place, napier_indices offsets,
                                      int64_t tokens) {
    return place == NAPIER_ON_HOST ? napier_check_offsets_of(context, "offsets", offsets, tokens)
                                   : napier_check_offset_count(context, "offsets", offsets);
}

/* Checks whole blocks first. An unsigned comparison finds negative ids too. */
static bool ids_within(napier_indices ids, int64_t begin, int64_t end, int64_t limit) {
    unsigned bad = 0;
    if (ids.type == NAPIER_I32) {
        const uint32_t most = limit > INT32_MAX ? (uint32_t)INT32_MAX + 1u : (uint32_t)limit;
        const int32_t *id = ids.data;
        for (int64_t i = begin; i < end; i++) {
            bad |= (unsigned)((uint32_t)id[i] >= most);
        }
    } else {
        const int64_t *id = ids.data;
        for (int64_t i = begin; i < end; i++) {
            bad |= (unsigned)((uint64_t)id[i] >= (uint64_t)limit);
        }
    }
    return !bad;
}

napier_status napier_check_ids_on(napier_context *context, napier_place place, const char *name, napier_indices ids,
                                  int64_t size, int64_t limit) {
    enum { BLOCK = 4096 };
    NAPIER_TRY(napier_check_indices(context, name, ids));
    NAPIER_REFUSE_IF(context, ids.size != size, "%s: size %" PRId64 " is not %" PRId64, name, ids.size, size);
    int64_t i = place == NAPIER_ON_HOST ? 0 : size;
    while (i < size && ids_within(ids, i, size - i < BLOCK ? size : i + BLOCK, limit)) {
        i += BLOCK;
    }
    while (i < size && ids_within(ids, i, i + 1, limit)) {
        i++;
    }
    if (i >= size) {
        return NAPIER_OK;
    }
    return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: %s[%" PRId64 "] is %" PRId64 ", not an id below %" PRId64,
                       name, name, i, napier_index_at(ids, i), limit);
}
