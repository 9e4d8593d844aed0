/* lm/tokenizer/load/load_text.c - reads how a text becomes words: the normalizer and the pre-tokenizer. */
#include "lm/tokenizer/tokenizer.h"

#include <string.h>

#include <cjson/cJSON.h>

static const napier_short_text plain_space = {" ", 1}, marked_space = {"\xe2\x96\x81", 3}; /* U+2581 */

/* ---- The normalizer ---------------------------------------------------------------------------------------------- */

static void read_step(napier_json *json, napier_steps *steps, const cJSON *item) {
    if (steps->count == NAPIER_MOST_STEPS) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "normalizer: more than %d steps", NAPIER_MOST_STEPS);
        return;
    }
    napier_step *const step = &steps->all[steps->count++];
    if (napier_load_is(json, item, "normalizer", "Prepend")) {
        step->kind = NAPIER_STEP_PREPEND;
        napier_load_short(json, item, "normalizer: Prepend", "prepend", &step->to);
    } else if (napier_load_is(json, item, "normalizer", "Replace")) {
        napier_load_replace(json, item, "normalizer: Replace", step);
    } else {
        step->kind = NAPIER_STEP_NFC;
        napier_load_type(json, item, "normalizer", "NFC");
    }
}

void napier_load_normalizer(napier_json *json, napier_tokenizer *t) {
    const cJSON *const item = napier_json_member(json, json->root, "normalizer");
    if (item == NULL) {
        return;
    }
    if (!napier_load_is(json, item, "normalizer", "Sequence")) {
        read_step(json, &t->steps, item);
        return;
    }
    const cJSON *const list = napier_json_member(json, item, "normalizers");
    for (const cJSON *step = cJSON_IsArray(list) ? list->child : NULL; step != NULL && !json->status;
         step = step->next) {
        read_step(json, &t->steps, step);
    }
}

/* ---- Words by an expression -------------------------------------------------------------------------------------- */

/* GPT-2's, which ByteLevel has built in. */
static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static void compile(napier_json *json, napier_tokenizer *t, const char *regex) {
    if (!json->status) {
        json->status = napier_split_compile(json, &t->allocator, regex, &t->words.split);
        t->words.has_pattern = true;
    }
}

static void read_pattern(napier_json *json, napier_tokenizer *t, const cJSON *split) {
    const char *regex = NULL, *behavior = "";
    napier_load_type(json, split, "pre_tokenizer", "Split");
    napier_load_false(json, split, "pre_tokenizer", "invert", false);
    napier_json_text(json, split, "behavior", &behavior);
    if (strcmp(behavior, "Isolated") != 0) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "pre_tokenizer: behavior %.40s, but only Isolated is supported",
                         napier_show_text(behavior).text);
    }
    napier_json_text(json, napier_json_member(json, split, "pattern"), "Regex", &regex);
    if (regex == NULL) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "pre_tokenizer: a pattern without Regex");
        return;
    }
    compile(json, t, regex);
}

/* Splitting by an expression, then converting bytes to characters. */
static void read_sequence(napier_json *json, napier_tokenizer *t, const cJSON *list) {
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != 2) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "pre_tokenizer: a Sequence other than Split and ByteLevel");
        return;
    }
    read_pattern(json, t, list->child);
    const cJSON *const bytes = list->child->next;
    napier_load_type(json, bytes, "pre_tokenizer", "ByteLevel");
    napier_load_false(json, bytes, "pre_tokenizer", "add_prefix_space", true);
    napier_load_false(json, bytes, "pre_tokenizer", "use_regex", true);
}

/* GPT-2's pre-tokenizer. */
static void read_byte_level(napier_json *json, napier_tokenizer *t, const cJSON *item) {
    bool adds_space = true, has_pattern = true;
    napier_json_bool(json, item, "add_prefix_space", &adds_space);
    napier_json_bool(json, item, "use_regex", &has_pattern);
    t->words.prefix = adds_space ? NAPIER_PREFIX_ALWAYS : NAPIER_PREFIX_NEVER;
    if (has_pattern) {
        compile(json, t, gpt2);
    }
}

/* ---- Words at spaces --------------------------------------------------------------------------------------------- */

/* Whether a piece is the first depends on its place in the text as given, which a step that adds or removes characters
 * there would change. */
static void check_first(napier_json *json, const napier_tokenizer *t) {
    for (int i = 0; i < t->steps.count && t->words.prefix == NAPIER_PREFIX_FIRST; i++) {
        if (t->steps.all[i].kind != NAPIER_STEP_REPLACE || t->steps.all[i].to.size == 0) {
            napier_json_fail(json, NAPIER_UNSUPPORTED,
                             "pre_tokenizer: Metaspace with prepend_scheme first, after a normalizer that moves text");
        }
    }
}

napier_prefix napier_load_metaspace(napier_json *json, const cJSON *item, const char *where, napier_short_text *mark) {
    static const char *const schemes[] = {"never", "first", "always"}; /* in the order of napier_prefix */
    const char *scheme = "always";
    bool adds_space = true;
    int k = 0;
    napier_json_text(json, item, "prepend_scheme", &scheme);
    napier_json_bool(json, item, "add_prefix_space", &adds_space); /* of older files */
    napier_load_short(json, item, where, "replacement", mark);
    while (k < 3 && strcmp(scheme, schemes[k]) != 0) {
        k++;
    }
    if (k == 3 || (!adds_space && k != 0)) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: prepend_scheme %s%s", where, napier_show_text(scheme).text,
                         k == 3 ? "" : ", but add_prefix_space is false");
        return NAPIER_PREFIX_NEVER;
    }
    if (mark->size == 0 || mark->size != napier_utf8_length((uint8_t)mark->bytes[0])) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: replacement: not one character", where);
    }
    return (napier_prefix)k;
}

static void read_metaspace(napier_json *json, napier_tokenizer *t, const cJSON *item) {
    bool splits = true;
    napier_json_bool(json, item, "split", &splits);
    t->words.prefix = napier_load_metaspace(json, item, "pre_tokenizer: Metaspace", &t->words.space);
    t->words.marks_spaces = true;
    t->words.cut = splits ? NAPIER_CUT_MARKS : NAPIER_CUT_RUNS;
    check_first(json, t);
}

void napier_load_pre_tokenizer(napier_json *json, napier_tokenizer *t) {
    const cJSON *const item = napier_json_member(json, json->root, "pre_tokenizer");
    t->words.space = marked_space;
    t->words.cut = NAPIER_CUT_RUNS;
    t->vocabulary.of_characters = true;
    if (item == NULL) { /* a text is one word */
        return;
    }
    if (napier_load_is(json, item, "pre_tokenizer", "Metaspace")) {
        read_metaspace(json, t, item);
        return;
    }
    t->words.space = plain_space;
    t->words.cut = NAPIER_CUT_NONE;
    t->vocabulary.of_characters = false;
    if (napier_load_is(json, item, "pre_tokenizer", "ByteLevel")) {
        read_byte_level(json, t, item);
        return;
    }
    napier_load_type(json, item, "pre_tokenizer", "Sequence");
    read_sequence(json, t, napier_json_member(json, item, "pretokenizers"));
}
