/* replay - runs a fuzz target on files, for compilers without libFuzzer and for inputs that once failed.
 *     fuzz_npy FILE... */
#include "fuzz.h"

static int replay(const char *path) {
    FILE *const file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    enum { LARGEST = 1 << 20 };
    uint8_t *const data = fuzz_allocate(LARGEST);
    const size_t size = fread(data, 1, LARGEST, file);
    const int bad = ferror(file);
    fclose(file);
    if (bad) {
        perror(path);
    } else {
        LLVMFuzzerTestOneInput(data, size);
    }
    free(data);
    return bad;
}

int main(int argc, char **argv) {
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        failed += replay(argv[i]);
    }
    printf("%d inputs, %d unreadable\n", argc - 1, failed);
    return failed ? 1 : 0;
}
