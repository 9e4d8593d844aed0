/* mpi_tokens - log-probabilities of tokens from logits whose vocabulary is divided over the ranks of MPI.
 *
 *     mpirun -n 4 mpi_tokens           (a laptop with fewer processors: mpirun --oversubscribe -n 4 mpi_tokens)
 *
 * Each rank makes some of the 151,936 columns of 8 rows, and all ranks get the log-probability and the entropy of one token
 * of each row. The last line has a checksum of their bytes: it is the same for any number of ranks. */
#include <mpi.h>
#include <napier/mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 8, VOCABULARY = 151936 };

/* Any logits will do: these wander between -10 and 10. */
static float logit(int64_t row, int64_t col) {
    const uint32_t mixed = (uint32_t)(row * VOCABULARY + col) * 2654435761U;
    return 20.0F * ((float)(mixed >> 8) / 16777216.0F) - 10.0F;
}

static unsigned long checksum(const float *values, int64_t count) {
    unsigned long sum = 5381;
    for (const unsigned char *at = (const unsigned char *)values, *end = at + (size_t)count * sizeof *values; at < end;
         at++) {
        sum = (sum * 33 + *at) & 0xffffffffUL;
    }
    return sum;
}

static napier_status score(napier_context *context, int rank, int ranks, float logprobs[ROWS], float entropy[ROWS]) {
    const int64_t first = (int64_t)VOCABULARY * rank / ranks, cols = (int64_t)VOCABULARY * (rank + 1) / ranks - first;
    const int64_t ids[ROWS] = {0, 1, 1023, 1024, 50000, 75968, 151934, 151935};
    float *const logits = malloc((size_t)(ROWS * cols + 1) * sizeof *logits);
    if (!logits) {
        return NAPIER_OUT_OF_MEMORY;
    }
    for (int64_t row = 0; row < ROWS; row++) {
        for (int64_t col = 0; col < cols; col++) {
            logits[row * cols + col] = logit(row, first + col);
        }
    }
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    results.logprobs = napier_rows_f32(logprobs, ROWS, 1);
    results.entropy = napier_array_f32(entropy, ROWS);
    const napier_status status =
        napier_mpi_token_logprobs(context, MPI_COMM_WORLD, napier_const_rows_f32(logits, ROWS, cols),
                                  napier_indices_i64(ids, ROWS), NULL, &results);
    free(logits);
    return status;
}

int main(int argc, char **argv) {
    int rank = 0, ranks = 1;
    float logprobs[ROWS], entropy[ROWS];
    napier_context *context = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    napier_status status = napier_context_create(&context, NULL);
    status = status ? status : score(context, rank, ranks, logprobs, entropy);
    if (status) {
        fprintf(stderr, "mpi_tokens: rank %d: %s: %s\n", rank, napier_status_string(status),
                napier_last_error(context));
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
    if (rank == 0) {
        printf("%d ranks: log-probability of the first row's token %.7g, entropy %.7g\n", ranks, (double)logprobs[0],
               (double)entropy[0]);
        printf("checksum of all %d rows: %08lx\n", ROWS, checksum(logprobs, ROWS) ^ checksum(entropy, ROWS) << 1);
    }
    napier_context_destroy(context);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
