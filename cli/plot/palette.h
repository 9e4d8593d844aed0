/* cli/plot/palette.h - colours of plots, for readers with any colour vision, on white. */
#ifndef NAPIER_CLI_PALETTE_H
#define NAPIER_CLI_PALETTE_H

#include <stdint.h>

typedef struct colour {
    uint8_t red, green, blue;
} colour;

/* As many categories can be told apart by colour; the others share one grey. */
enum { PALETTE_MOST = 20 };

/* The colour of category `index` of `count`, at most PALETTE_MOST. Up to eight are those of Okabe and Ito (2008). */
colour palette_category(int index, int count);

/* Of points whose category has no colour of its own, or that have no label. */
colour palette_other(void);

/* Of points on a plot without labels. */
colour palette_plain(void);

/* A value from 0 to 1 on a scale that rises evenly in lightness, from dark violet over green to yellow. */
colour palette_value(double t);

#endif
