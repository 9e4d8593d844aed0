/* opencl - softmax on a device of OpenCL: the functions of napier/opencl.h. */
#include "example.h"

/* The first device that can do it, in memory that the context allocates. Without such a device the text says why. */
static void softmax_on_a_device(napier_context *context) {
    float rows[] = {0, 0, 1, 1};
    char why[256];
    void *memory = NULL;
    napier_cuda_context *device = NULL;
    if (napier_opencl_context_create(&device, NULL, NULL, NULL, NULL, why, sizeof why) != NAPIER_OK) {
        printf("%s\n", why);
        return;
    }
    printf("%s: bitwise, verified\n", napier_opencl_device_name(device));
    EXPECT(napier_opencl_allocate(device, sizeof rows, &memory) == NAPIER_OK);
    EXPECT(napier_opencl_copy(device, memory, rows, sizeof rows) == NAPIER_OK);
    EXPECT(napier_cuda_softmax(device, NULL, NULL, napier_const_rows(memory, 2, 2, NAPIER_F32),
                               napier_rows(memory, 2, 2, NAPIER_F32), NULL) == NAPIER_OK);
    EXPECT(napier_cuda_synchronize(device, NULL) == NAPIER_OK);
    EXPECT(napier_opencl_copy(device, rows, memory, sizeof rows) == NAPIER_OK);
    EXPECT(rows[0] == 0.5F && rows[3] == 0.5F);
    EXPECT(napier_opencl_free(device, memory) == NAPIER_OK);
    napier_cuda_context_destroy(device);
}

/* Kernels reach memory of clSVMAlloc between these two calls. A context that is not of OpenCL, here none, is refused. */
static void memory_of_the_caller(napier_context *context) {
    float numbers[4];
    EXPECT(napier_opencl_memory_add(NULL, numbers) == NAPIER_INVALID_ARGUMENT);
    EXPECT(napier_opencl_memory_remove(NULL, numbers) == NAPIER_INVALID_ARGUMENT);
}

int main(void) { return run_examples((example *const[]){softmax_on_a_device, memory_of_the_caller, NULL}); }
