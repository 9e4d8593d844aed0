/* cli/umap/umap_labels.h - what is known of each point: a category or a number, from an .npy file or one line of text
 * each. */
#ifndef NAPIER_CLI_UMAP_LABELS_H
#define NAPIER_CLI_UMAP_LABELS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum label_type { LABELS_AUTO, LABELS_CATEGORIES, LABELS_NUMBERS } label_type;

typedef struct labels {
    label_type type; /* AUTO: there are none */
    int64_t count;   /* points */

    int32_t *codes;     /* [count] index of the category; -1: not known */
    int32_t categories; /* how many; sorted: numbers by size, names by the alphabet, "a 9" before "a 10" */
    char **names;       /* [categories] valid UTF-8 without control characters */
    int64_t *sizes;     /* [categories] points in each */

    double *numbers;    /* [count] NaN or infinite: not known */
    double least, most; /* of those that are known; least > most: none is */
} labels;

/* AUTO: text that is not all numbers, and whole numbers of at most 50 values, are categories; all else are numbers. An
 * empty line is not known. `negative_unknown`: nor are categories that are numbers below 0. "-" is standard input. */
int labels_read(labels *l, const char *path, label_type type, bool negative_unknown);
void labels_free(labels *l);

/* A copy that is valid UTF-8 and has no control characters: foreign bytes become U+FFFD, control characters spaces.
 * NULL: out of memory. */
char *labels_clean_text(const char *text);

#endif
