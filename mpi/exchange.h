/* mpi/exchange.h - the messages of a call on rows of which each rank has some columns.
 *
 * A tile of 1024 columns that lies in several shards belongs to the rank with the most of it (the first of equals). The
 * others send it their part. Every rank takes part in every message, also after an error of its own, so that no rank
 * waits for one that has left; the status travels with the data. A rank without memory for a message itself cannot do that,
 * and ends all of them with MPI_Abort. */
#ifndef NAPIER_MPI_EXCHANGE_H
#define NAPIER_MPI_EXCHANGE_H

#include <napier/mpi.h>
#include <stdbool.h>

/* A step of this rank, unless it has failed already. */
#define STEP(x_, ...)                     \
    do {                                  \
        if (!(x_)->status) {              \
            (x_)->status = (__VA_ARGS__); \
        }                                 \
    } while (0)

/* Returns a failure. */
#define TRY(...)                                      \
    do {                                              \
        const napier_status failure_ = (__VA_ARGS__); \
        if (failure_) {                               \
            return failure_;                          \
        }                                             \
    } while (0)

enum { EXCHANGE_BLOCKS = 64, EXCHANGE_FACTS = 8 };

/* Columns begin .. end - 1, which rank `rank` sends or gets. */
typedef struct part {
    int rank;
    int64_t begin, end;
    void *data; /* [rows][end - begin] */
} part;

typedef struct exchange {
    napier_context *context;
    MPI_Comm comm;
    int rank, ranks;
    napier_status status; /* of this rank so far */
    bool open;            /* no rank has failed in exchange_open: equal on all ranks */
    int64_t rows;
    int64_t *offsets; /* [ranks + 1]: rank r has columns offsets[r] .. offsets[r + 1] - 1 */
    int64_t *tiles;   /* [ranks + 1]: and owns tiles tiles[r] .. tiles[r + 1] - 1 */
    int64_t vocabulary;
    void *blocks[EXCHANGE_BLOCKS]; /* freed by exchange_close */
    int block_count;
} exchange;

/* What all ranks must agree on. A fact is a name and a value. */
typedef struct fact {
    const char *name;
    int64_t value;
} fact;

/* Starts a call: the ranks exchange their columns and compare facts (at most EXCHANGE_FACTS - 2). `status` is what this
 * rank knows of its own arguments. If any rank fails, all do. */
napier_status exchange_open(exchange *x, napier_context *context, MPI_Comm comm, napier_status status, int64_t rows,
                            int64_t cols, const fact *facts, int count);
/* Ends a call: the ranks exchange their status, so that an error of one is an error of all; frees the memory. Returns the
 * status. */
napier_status exchange_close(exchange *x);

/* count * size bytes, freed by exchange_close; NULL, and the status, if there is no memory. */
void *exchange_take(exchange *x, int64_t count, size_t size);
/* Fails with this text. */
napier_status exchange_fail(exchange *x, napier_status status, const char *format, ...);

/* The shard's columns begin .. end - 1 (of the whole row) go to `to`, whose rows are `step` elements apart. */
typedef napier_status exchange_columns(void *argument, int64_t begin, int64_t end, void *to, int64_t step);

/* The tiles of this rank that other ranks have parts of: at most the first and the last. */
typedef struct edge {
    int64_t first; /* column */
    napier_const_matrix x;
} edge;
typedef struct whole_tiles {
    edge edges[2];
    int count;
    int64_t begin, end; /* the columns between them, which this rank has */
} whole_tiles;

/* Exchanges the parts of shared tiles. */
void exchange_tiles(exchange *x, napier_dtype dtype, exchange_columns *columns, void *argument, whole_tiles *out);

/* All ranks get the `bytes` bytes of every rank, [ranks][bytes], or, if one has failed, an error. */
void exchange_gather(exchange *x, const void *mine, size_t bytes, void *all);

/* The same for the floats of tiles: own [rows][values * own tiles] becomes all [rows][values * all tiles], in order.
 * extra [rows][more] of each rank becomes extras [ranks][rows][more]. */
void exchange_gather_tiles(exchange *x, int values, const float *own, const float *extra, int64_t more, float *all,
                           float *extras);

static inline int64_t exchange_first(const exchange *x) { return x->offsets[x->rank]; }
static inline int64_t exchange_own_tiles(const exchange *x) { return x->tiles[x->rank + 1] - x->tiles[x->rank]; }
static inline int64_t exchange_all_tiles(const exchange *x) { return x->tiles[x->ranks]; }

/* A call of MPI; a failure becomes the status. */
void exchange_check(exchange *x, int code, const char *what);

#endif
