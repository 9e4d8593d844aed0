/* cuda_softmax - one row of logits on the CPU and on a GPU: the same bits.
 *
 *     cc cuda_softmax.c $(pkg-config --cflags --libs napier) -I/usr/local/cuda/include -L/usr/local/cuda/lib64 -lcudart -o cuda_softmax
 *
 * Exit status 77: no GPU, or a library without CUDA. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>
#include <napier/napier.h>

enum { COLS = 151936 };

static int complain(const char *what, const char *why) {
    fprintf(stderr, "cuda_softmax: %s: %s\n", what, why);
    return 1;
}

/* softmax of `logits` on the GPU. The workspace is asked for first, then given; both arrays are the device's. */
static int softmax_on_device(napier_cuda_context *context, const float *logits, float *probs) {
    void *in = NULL, *out = NULL;
    napier_cuda_workspace workspace = {NULL, 0};
    if (cudaMalloc(&in, COLS * sizeof(float)) != cudaSuccess || cudaMalloc(&out, COLS * sizeof(float)) != cudaSuccess) {
        return complain("memory", "the device has none left");
    }
    const napier_const_matrix from = napier_const_rows_f32(in, 1, COLS);
    const napier_matrix to = napier_rows_f32(out, 1, COLS);
    napier_status status = napier_cuda_softmax(context, NULL, &workspace, from, to, NULL); /* asks */
    if (status == NAPIER_OK && workspace.size > 0 && cudaMalloc(&workspace.data, workspace.size) != cudaSuccess) {
        return complain("workspace", "the device has no memory left");
    }
    (void)cudaMemcpy(in, logits, COLS * sizeof(float), cudaMemcpyHostToDevice);
    if (status == NAPIER_OK) {
        status = napier_cuda_softmax(context, NULL, workspace.data ? &workspace : NULL, from, to, NULL); /* runs */
    }
    if (status == NAPIER_OK) {
        status = napier_cuda_synchronize(context, NULL);
    }
    (void)cudaMemcpy(probs, out, COLS * sizeof(float), cudaMemcpyDeviceToHost);
    (void)cudaFree(in);
    (void)cudaFree(out);
    (void)cudaFree(workspace.data);
    return status == NAPIER_OK ? 0 : complain(napier_status_string(status), napier_cuda_last_error(context));
}

int main(void) {
    static float logits[COLS], cpu[COLS], gpu[COLS];
    napier_context *context = NULL;
    napier_cuda_context *device = NULL;
    if (napier_cuda_device_count() == 0 || napier_cuda_context_create(&device, -1) != NAPIER_OK) {
        puts("no GPU, or a library without CUDA");
        return 77;
    }
    for (int i = 0; i < COLS; i++) {
        logits[i] = 8.0F * (float)rand() / (float)RAND_MAX;
    }
    int failed = napier_context_create(&context, NULL) != NAPIER_OK ||
                 napier_softmax(context, napier_const_rows_f32(logits, 1, COLS), napier_rows_f32(cpu, 1, COLS), NULL) ||
                 softmax_on_device(device, logits, gpu);
    if (!failed) {
        failed = memcmp(cpu, gpu, sizeof cpu) != 0;
        printf("%d probabilities on the CPU and on the GPU: %s\n", COLS, failed ? "they differ" : "the same bits");
    }
    napier_context_destroy(context);
    napier_cuda_context_destroy(device);
    return failed;
}
