/* hello - the smallest program that uses Napier: logsumexp of three numbers whose exp overflows.
 *
 *     cc hello.c $(pkg-config --cflags --libs napier) -o hello */
#include <stdio.h>

#include <napier/napier.h>

int main(void) {
    const float logits[] = {1000.0F, 1001.0F, 1002.0F};
    float lse = 0.0F;
    napier_context *context = NULL;
    napier_status status = napier_context_create(&context, NULL);
    if (status == NAPIER_OK) {
        status = napier_logsumexp(context, napier_const_rows_f32(logits, 1, 3), napier_array_f32(&lse, 1), NULL);
    }
    printf("%s: log(exp(1000) + exp(1001) + exp(1002)) = %.4f\n", napier_status_string(status), (double)lse);
    napier_context_destroy(context);
    return status == NAPIER_OK ? 0 : 1;
}
