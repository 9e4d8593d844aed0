/* fuzz_umap_labels - hostile files of labels: a message, or categories that are sorted, named so that they can be shown, and
 * counted right, or numbers whose range is right. The first byte says how they are read. */
#include "fuzz_file.h"

#include <math.h>

#include "program/message.h"
#include "umap/umap_labels.h"

/* No control characters, and made clean again it is the same: so it is well-formed. */
static void check_name(const char *name) {
    for (const char *at = name; *at; at++) {
        REQUIRE((unsigned char)*at >= ' ' && *at != 0x7f, "a control character in a name");
    }
    char *const again = labels_clean_text(name);
    REQUIRE(again && strcmp(again, name) == 0, "a name that is not clean");
    free(again);
}

static void check_categories(const labels *l) {
    int64_t known = 0, counted = 0;
    int64_t *const sizes = fuzz_allocate(((size_t)l->categories + 1) * sizeof *sizes);
    memset(sizes, 0, ((size_t)l->categories + 1) * sizeof *sizes);
    for (int64_t i = 0; i < l->count; i++) {
        REQUIRE(l->codes[i] >= -1 && l->codes[i] < l->categories, "code %d of %d", l->codes[i], l->categories);
        known += l->codes[i] >= 0;
        sizes[l->codes[i] >= 0 ? l->codes[i] : l->categories]++;
    }
    for (int32_t c = 0; c < l->categories; c++) {
        REQUIRE(l->sizes[c] > 0 && l->sizes[c] == sizes[c], "category %d of %lld points has %lld", c,
                (long long)sizes[c], (long long)l->sizes[c]);
        counted += l->sizes[c];
        check_name(l->names[c]);
    }
    REQUIRE(counted == known, "%lld points in categories, %lld are known", (long long)counted, (long long)known);
    free(sizes);
}

static void check_numbers(const labels *l) {
    double least = (double)INFINITY, most = -(double)INFINITY;
    for (int64_t i = 0; i < l->count; i++) {
        if (isfinite(l->numbers[i])) {
            least = fmin(least, l->numbers[i]);
            most = fmax(most, l->numbers[i]);
        }
    }
    REQUIRE(l->least == least && l->most == most, "from %g to %g, not %g to %g", l->least, l->most, least, most);
}

FUZZ(in) {
    static const label_type types[] = {LABELS_AUTO, LABELS_CATEGORIES, LABELS_NUMBERS};
    const unsigned how = take(&in);
    const char *const path = fuzz_file(in.at, in.left);
    labels l;
    if (labels_read(&l, path, types[how % 3], how / 3 % 2 == 1) == STATUS_OK) {
        REQUIRE(l.type == LABELS_CATEGORIES || l.type == LABELS_NUMBERS, "type %d", (int)l.type);
        if (l.type == LABELS_CATEGORIES) {
            check_categories(&l);
        } else {
            check_numbers(&l);
        }
    }
    labels_free(&l);
    fuzz_file_remove(path);
}
