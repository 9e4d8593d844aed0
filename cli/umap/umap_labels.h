/* cli/umap/umap_labels.h - the labels of points: a category or a number for each, from an .npy file or one line of text
 * per point. */
#ifndef NAPIER_CLI_UMAP_LABELS_H
#define NAPIER_CLI_UMAP_LABELS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum label_type { LABELS_AUTO, LABELS_CATEGORIES, LABELS_NUMBERS } label_type;

typedef struct labels {
    label_type type; /* AUTO: no labels */
    int64_t count;   /* points */

    int32_t *codes;     /* [count] index of the category; -1: unknown */
    int32_t categories; /* their number; sorted: numbers by size, names alphabetically, "a 9" before "a 10" */
    char **names;       /* [categories] valid UTF-8 without control characters */
    int64_t *sizes;     /* [categories] points in each */
    bool like_numbers;  /* hardly two points share a category, and some categories are fractions */

    double *numbers;    /* [count] NaN or infinite: unknown */
    double least, most; /* of the known ones; least > most: none is known */
} labels;

/* AUTO: text that is not all numbers, and integers with at most 50 values, are categories; everything else is numbers.
 * An empty line is unknown. With `negative_unknown`, so are categories that are numbers below 0. "-" is standard
 * input. */
int labels_read(labels *l, const char *path, label_type type, bool negative_unknown);
void labels_free(labels *l);

/* Returns a copy that is valid UTF-8 without control characters: invalid bytes become U+FFFD, control characters
 * spaces. NULL: out of memory. */
char *labels_clean_text(const char *text);

#endif
