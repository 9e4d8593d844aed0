/* cli/plot/palette.h - colours of plots, for readers with any colour vision, on white. */
#ifndef NAPIER_CLI_PALETTE_H
#define NAPIER_CLI_PALETTE_H

#include <stdint.h>

typedef struct colour {
    uint8_t red, green, blue;
} colour;

/* The number of categories that have their own colour; the others share one grey. */
enum { PALETTE_MOST = 20 };

/* The colour of category `index` of `count`, at most PALETTE_MOST. Up to eight are those of Okabe and Ito (2008). */
colour palette_category(int index, int count);

/* The colour of points without a label, or whose category has no colour of its own. */
colour palette_other(void);

/* The colour of points on a plot without labels. */
colour palette_plain(void);

/* The colour of a value from 0 to 1, on a scale whose lightness rises evenly from dark violet over green to yellow. */
colour palette_value(double t);

#endif
