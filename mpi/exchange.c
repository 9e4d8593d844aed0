/* mpi/exchange.c - see exchange.h. */
#include "exchange.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Errors and memory --------------------------------------------------------------------------------------------- */

napier_status exchange_fail(exchange *x, napier_status status, const char *format, ...) {
    char text[200];
    va_list arguments;
    if (!x->status) {
        va_start(arguments, format);
        (void)vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        x->status = napier_set_error(x->context, status, text);
    }
    return x->status;
}

void exchange_check(exchange *x, int code, const char *what) {
    if (code != MPI_SUCCESS && !x->status) {
        char text[MPI_MAX_ERROR_STRING] = "";
        int length = 0;
        (void)MPI_Error_string(code, text, &length);
        exchange_fail(x, NAPIER_IO_ERROR, "%s: %.100s", what, text);
    }
}

void *exchange_take(exchange *x, int64_t count, size_t size) {
    const bool fits = count >= 0 && x->block_count < EXCHANGE_BLOCKS && (uint64_t)count <= (SIZE_MAX - 1) / size;
    void *block = fits ? malloc((size_t)count * size + 1) : NULL;
    if (!block) {
        exchange_fail(x, NAPIER_OUT_OF_MEMORY, "exchange: no memory for %" PRId64 " times %zu bytes", count, size);
        return NULL;
    }
    x->blocks[x->block_count++] = block;
    return block;
}

napier_status exchange_close(exchange *x) {
    if (x->open) {
        exchange_gather(x, NULL, 0, NULL);
    }
    while (x->block_count > 0) {
        free(x->blocks[--x->block_count]);
    }
    return x->status;
}

/* ---- Who has which columns, and who owns which tiles ------------------------------------------------------------------ */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t tile_end(const exchange *x, int64_t tile) {
    return least((tile + 1) * NAPIER_SHARD_TILE, x->vocabulary);
}

/* The columns of a tile that rank r has. */
static part part_of(const exchange *x, int64_t tile, int r) {
    const part p = {r, most(tile * NAPIER_SHARD_TILE, x->offsets[r]), least(tile_end(x, tile), x->offsets[r + 1]),
                    NULL};
    return p;
}

static int owner_of(const exchange *x, int64_t tile) {
    int owner = 0;
    int64_t best = 0;
    for (int r = 0; r < x->ranks; r++) {
        const part p = part_of(x, tile, r);
        if (p.end - p.begin > best) {
            best = p.end - p.begin;
            owner = r;
        }
    }
    return owner;
}

/* The tiles of a rank begin with the one that its first column lies in, or with the next. */
static void divide_tiles(exchange *x) {
    for (int r = 0; r < x->ranks; r++) {
        const int64_t tile = x->offsets[r] / NAPIER_SHARD_TILE;
        const bool starts = x->offsets[r] % NAPIER_SHARD_TILE == 0;
        x->tiles[r] = starts || owner_of(x, tile) >= r ? tile : tile + 1;
    }
    x->tiles[x->ranks] = (x->vocabulary + NAPIER_SHARD_TILE - 1) / NAPIER_SHARD_TILE;
}

/* ---- The first message ------------------------------------------------------------------------------------------------- */

static void compare(exchange *x, const int64_t *all, const fact *facts, int count) {
    for (int r = 0; r < x->ranks; r++) {
        const int64_t *theirs = all + (int64_t)r * EXCHANGE_FACTS;
        if (theirs[0] != NAPIER_OK) {
            exchange_fail(x, NAPIER_IO_ERROR, "comm: rank %d failed: %s", r,
                          napier_status_string((napier_status)theirs[0]));
            return;
        }
    }
    for (int r = 0; r < x->ranks; r++) {
        for (int i = 0; i < count; i++) {
            const int64_t theirs = all[(int64_t)r * EXCHANGE_FACTS + 2 + i];
            if (theirs != all[2 + i]) {
                exchange_fail(x, NAPIER_STATE_MISMATCH, "%s: rank %d has %" PRId64 ", rank 0 has %" PRId64,
                              facts[i].name, r, theirs, all[2 + i]);
                return;
            }
        }
    }
}

napier_status exchange_open(exchange *x, napier_context *context, MPI_Comm comm, napier_status status, int64_t rows,
                            int64_t cols, const fact *facts, int count) {
    memset(x, 0, sizeof *x);
    x->context = context;
    x->comm = comm;
    x->status = context ? status : NAPIER_INVALID_ARGUMENT;
    x->rows = rows;
    exchange_check(x, MPI_Comm_rank(comm, &x->rank), "comm");
    exchange_check(x, MPI_Comm_size(comm, &x->ranks), "comm");
    int64_t *const all = exchange_take(x, x->ranks, EXCHANGE_FACTS * sizeof *all);
    x->offsets = exchange_take(x, x->ranks + 1, sizeof *x->offsets);
    x->tiles = exchange_take(x, x->ranks + 1, sizeof *x->tiles);
    int64_t mine[EXCHANGE_FACTS] = {x->status, cols};
    for (int i = 0; i < count; i++) {
        mine[2 + i] = facts[i].value;
    }
    if (!all || !x->offsets || !x->tiles) {
        (void)MPI_Abort(comm, NAPIER_OUT_OF_MEMORY); /* the others wait for this rank */
        return x->status;
    }
    exchange_check(x, MPI_Allgather(mine, EXCHANGE_FACTS, MPI_INT64_T, all, EXCHANGE_FACTS, MPI_INT64_T, comm),
                   "the exchange of sizes");
    if (x->status) {
        return x->status;
    }
    compare(x, all, facts, count);
    x->offsets[0] = 0;
    for (int r = 0; !x->status && r < x->ranks; r++) {
        const int64_t theirs = all[(int64_t)r * EXCHANGE_FACTS + 1];
        if (theirs < 0 || theirs > INT64_MAX / 2 - x->offsets[r]) {
            return exchange_fail(x, NAPIER_INVALID_ARGUMENT, "cols: %" PRId64 " of rank %d are impossible", theirs, r);
        }
        x->offsets[r + 1] = x->offsets[r] + theirs;
    }
    if (!x->status) {
        x->vocabulary = x->offsets[x->ranks];
        divide_tiles(x);
        x->open = true;
    }
    return x->status;
}

/* ---- Parts of shared tiles ------------------------------------------------------------------------------------------- */

/* The tiles that this rank's first and last column lie in, where others have parts of them. Returns their number. */
static int shared_tiles(const exchange *x, int64_t tiles[2]) {
    const int64_t first = x->offsets[x->rank], end = x->offsets[x->rank + 1];
    int count = 0;
    if (first == end) {
        return 0;
    }
    const int64_t ends[2] = {first / NAPIER_SHARD_TILE, (end - 1) / NAPIER_SHARD_TILE};
    for (int i = 0; i < 2; i++) {
        const bool whole = ends[i] * NAPIER_SHARD_TILE >= first && tile_end(x, ends[i]) <= end;
        if (!whole && (i == 0 || ends[1] != ends[0])) {
            tiles[count++] = ends[i];
        }
    }
    return count;
}

static bool owns(const exchange *x, int64_t tile) { return tile >= x->tiles[x->rank] && tile < x->tiles[x->rank + 1]; }

static int owner_by_tiles(const exchange *x, int64_t tile) {
    int r = 0;
    while (tile >= x->tiles[r + 1]) {
        r++;
    }
    return r;
}

/* Bytes of a part, as MPI counts them. */
static int bytes_of(exchange *x, const part *p, size_t size) {
    const int64_t cols = p->end - p->begin;
    if (x->rows > 0 && cols > INT_MAX / (int64_t)size / x->rows) {
        exchange_fail(x, NAPIER_INVALID_ARGUMENT, "rows: %" PRId64 " are too many for one message; pass some at a time",
                      x->rows);
        return 0;
    }
    return (int)(cols * x->rows * (int64_t)size);
}

static void copy_part(const exchange *x, const part *p, size_t size, char *to, int64_t step) {
    const size_t bytes = (size_t)(p->end - p->begin) * size;
    for (int64_t row = 0; row < x->rows; row++) {
        memcpy(to + (size_t)(row * step) * size, (const char *)p->data + (size_t)row * bytes, bytes);
    }
}

/* Sends this rank's part of a tile to its owner. */
static void send_part(exchange *x, int64_t tile, size_t size, exchange_columns *columns, void *argument,
                      MPI_Request *request) {
    part mine = part_of(x, tile, x->rank);
    const int bytes = bytes_of(x, &mine, size);
    mine.data = exchange_take(x, x->rows * (mine.end - mine.begin), size);
    if (mine.data && !x->status) {
        x->status = columns(argument, mine.begin, mine.end, mine.data, mine.end - mine.begin);
    }
    /* an empty message in place of one that there is no memory for; the status follows */
    exchange_check(x,
                   MPI_Isend(mine.data, mine.data ? bytes : 0, MPI_BYTE, owner_by_tiles(x, tile), 1, x->comm, request),
                   "the exchange of parts");
}

/* Assembles a tile of this rank. */
static void take_tile(exchange *x, int64_t tile, napier_dtype dtype, exchange_columns *columns, void *argument,
                      edge *out) {
    const size_t size = napier_dtype_size(dtype);
    const int64_t first = tile * NAPIER_SHARD_TILE, n = tile_end(x, tile) - first;
    char *const data = exchange_take(x, x->rows * n, size);
    out->first = first;
    out->x = napier_const_rows(data, x->rows, n, dtype);
    for (int r = 0; r < x->ranks; r++) {
        part p = part_of(x, tile, r);
        if (p.begin >= p.end) {
            continue;
        }
        if (r == x->rank) {
            if (!x->status) {
                x->status = columns(argument, p.begin, p.end, data + (size_t)(p.begin - first) * size, n);
            }
            continue;
        }
        p.data = malloc((size_t)(x->rows * (p.end - p.begin)) * size + 1);
        if (!p.data) {
            exchange_fail(x, NAPIER_OUT_OF_MEMORY, "exchange: no memory for a part of a tile");
            (void)MPI_Abort(x->comm, NAPIER_OUT_OF_MEMORY); /* the other rank waits to send it */
            continue;
        }
        exchange_check(x, MPI_Recv(p.data, bytes_of(x, &p, size), MPI_BYTE, r, 1, x->comm, MPI_STATUS_IGNORE),
                       "the exchange of parts");
        if (data) {
            copy_part(x, &p, size, data + (size_t)(p.begin - first) * size, n);
        }
        free(p.data);
    }
}

void exchange_tiles(exchange *x, napier_dtype dtype, exchange_columns *columns, void *argument, whole_tiles *out) {
    int64_t shared[2] = {0, 0};
    const int count = shared_tiles(x, shared);
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    out->count = 0;
    for (int i = 0; i < count; i++) {
        if (!owns(x, shared[i])) {
            send_part(x, shared[i], napier_dtype_size(dtype), columns, argument, &requests[i]);
        }
    }
    for (int i = 0; i < count; i++) {
        if (owns(x, shared[i])) {
            take_tile(x, shared[i], dtype, columns, argument, &out->edges[out->count++]);
        }
    }
    exchange_check(x, MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), "the exchange of parts");
    const int64_t first = x->offsets[x->rank], end = x->offsets[x->rank + 1];
    const int64_t up = (first + NAPIER_SHARD_TILE - 1) / NAPIER_SHARD_TILE * NAPIER_SHARD_TILE;
    const int64_t down = end == x->vocabulary ? end : end / NAPIER_SHARD_TILE * NAPIER_SHARD_TILE;
    out->begin = least(up, end);
    out->end = most(down, out->begin);
    if (up > end) { /* all within one tile */
        out->begin = out->end = first;
    }
}

/* ---- Records of all ranks ------------------------------------------------------------------------------------------- */

void exchange_gather(exchange *x, const void *mine, size_t bytes, void *all) {
    if (bytes > INT_MAX - sizeof(int64_t)) {
        exchange_fail(x, NAPIER_INVALID_ARGUMENT, "rows: %" PRId64 " are too many for one message; pass some at a time",
                      x->rows); /* the same on every rank */
        return;
    }
    const size_t each = bytes + sizeof(int64_t);
    char *const sent = malloc(each), *const got = malloc(each * (size_t)x->ranks);
    if (!sent || !got) { /* then this rank cannot take part, and MPI must end the others */
        exchange_fail(x, NAPIER_OUT_OF_MEMORY, "exchange: no memory for the records of %d ranks", x->ranks);
        free(sent);
        free(got);
        (void)MPI_Abort(x->comm, NAPIER_OUT_OF_MEMORY);
        return;
    }
    const int64_t status = x->status;
    memcpy(sent, &status, sizeof status);
    if (mine && bytes > 0) {
        memcpy(sent + sizeof status, mine, bytes);
    } else {
        memset(sent + sizeof status, 0, bytes);
    }
    exchange_check(x, MPI_Allgather(sent, (int)each, MPI_BYTE, got, (int)each, MPI_BYTE, x->comm),
                   "the exchange of states");
    for (int r = 0; r < x->ranks; r++) {
        int64_t theirs;
        memcpy(&theirs, got + (size_t)r * each, sizeof theirs);
        if (theirs != NAPIER_OK) {
            exchange_fail(x, NAPIER_IO_ERROR, "comm: rank %d failed: %s", r,
                          napier_status_string((napier_status)theirs));
        }
        if (all && bytes > 0) {
            memcpy((char *)all + (size_t)r * bytes, got + (size_t)r * each + sizeof theirs, bytes);
        }
    }
    free(sent);
    free(got);
}

void exchange_gather_tiles(exchange *x, int values, const float *own, const float *extra, int64_t more, float *all,
                           float *extras) {
    int64_t widest = 0;
    for (int r = 0; r < x->ranks; r++) {
        widest = most(widest, x->tiles[r + 1] - x->tiles[r]);
    }
    const int64_t step = widest * values + more, mine = exchange_own_tiles(x) * values;
    const int64_t whole = exchange_all_tiles(x) * values;
    float *const sent = exchange_take(x, x->rows * step, sizeof *sent);
    float *const got = exchange_take(x, x->rows * step * x->ranks, sizeof *got);
    if (sent) {
        memset(sent, 0, (size_t)(x->rows * step) * sizeof *sent);
    }
    for (int64_t row = 0; sent && own && row < x->rows; row++) {
        memcpy(sent + row * step, own + row * mine, (size_t)mine * sizeof *sent);
        if (more > 0 && extra) {
            memcpy(sent + row * step + widest * values, extra + row * more, (size_t)more * sizeof *sent);
        }
    }
    exchange_gather(x, sent, (size_t)(x->rows * step) * sizeof *sent, got);
    for (int r = 0; !x->status && got && r < x->ranks; r++) {
        const size_t bytes = (size_t)((x->tiles[r + 1] - x->tiles[r]) * values) * sizeof *got;
        for (int64_t row = 0; row < x->rows; row++) {
            const float *from = got + ((int64_t)r * x->rows + row) * step;
            memcpy(all + row * whole + x->tiles[r] * values, from, bytes);
            if (more > 0) {
                memcpy(extras + ((int64_t)r * x->rows + row) * more, from + widest * values,
                       (size_t)more * sizeof *got);
            }
        }
    }
}
