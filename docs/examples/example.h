/* example.h - what the programs of this folder share: a check that ends the program, and the run of its examples.
 *
 * Each example is a function of its own and calls public functions only. The documentation shows it beside them. */
#ifndef NAPIER_EXAMPLE_H
#define NAPIER_EXAMPLE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <napier/napier.h>

/* Ends the program with the text of the expression if it is false, and with the context's last error. */
#define EXPECT(...) ((__VA_ARGS__) ? (void)0 : example_failed(__FILE__, __LINE__, #__VA_ARGS__, context))

/* Whether two numbers agree to six digits after the point. */
#define IS_NEAR(value, expected) (fabs((double)(value) - (double)(expected)) < 1e-6)

typedef void example(napier_context *context);

static inline void example_failed(const char *file, int line, const char *text, const napier_context *context) {
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, text, context ? napier_last_error(context) : "");
    exit(EXIT_FAILURE);
}

/* Runs the examples of a list that NULL ends. */
static inline int run_examples(example *const *examples) {
    napier_context *context = NULL;
    EXPECT(napier_context_create(&context, NULL) == NAPIER_OK);
    for (; *examples; examples++) {
        (*examples)(context);
    }
    napier_context_destroy(context);
    return EXIT_SUCCESS;
}

#endif
