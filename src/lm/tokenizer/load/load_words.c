/* lm/tokenizer/load/load_words.c - reads the pre-tokenizer: a list of steps that cut a text into words. */
#include "lm/tokenizer/tokenizer.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "core/base/scope.h"

static const char where[] = "pre_tokenizer";
static const napier_short_text plain_space = {" ", 1}, marked_space = {"\xe2\x96\x81", 3}; /* U+2581 */

/* GPT-2's expression, which ByteLevel has built in. */
static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* The next step, to be filled in. After a failure it is one that nobody uses. */
static napier_word_step *add_step(napier_json *json, napier_words *w, napier_word_step_kind kind) {
    if (w->count == NAPIER_MOST_WORD_STEPS) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: more than %d steps", where, NAPIER_MOST_WORD_STEPS);
        w->count--;
        napier_split_free(&w->steps[w->count].split);
    }
    napier_word_step *const step = &w->steps[w->count++];
    *step = (napier_word_step){.kind = kind};
    return step;
}

/* ---- Expressions and sets ---------------------------------------------------------------------------------------- */

static napier_behavior read_behavior(napier_json *json, const cJSON *item) {
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
    const char *name = names[0];
    int k = 0;
    napier_json_text(json, item, "behavior", &name);
    while (k < 5 && strcmp(name, names[k]) != 0) {
        k++;
    }
    if (k == 5) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: behavior %.40s", where, napier_show_text(name).text);
        return NAPIER_ISOLATED;
    }
    return (napier_behavior)k;
}

static void add_pattern(napier_json *json, napier_words *w, napier_pattern pattern, napier_behavior behavior) {
    napier_word_step *const step = add_step(json, w, NAPIER_WORDS_PATTERN);
    step->pattern = pattern;
    step->behavior = behavior;
    if (pattern.text == NULL || *pattern.text == '\0') {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: a pattern without Regex or String", where);
    }
}

static void add_set(napier_json *json, napier_words *w, uint32_t kinds, napier_behavior behavior) {
    napier_word_step *const step = add_step(json, w, NAPIER_WORDS_CHARS);
    step->kinds = kinds;
    step->behavior = behavior;
}

static void read_split(napier_json *json, napier_tokenizer *t, const cJSON *item) {
    napier_pattern pattern = {NULL, false};
    bool inverted = false;
    const cJSON *const member = napier_json_member(json, item, "pattern");
    napier_json_text(json, member, "Regex", &pattern.text);
    if (pattern.text == NULL) {
        pattern.literal = true;
        napier_json_text(json, member, "String", &pattern.text);
    }
    napier_json_bool(json, item, "invert", &inverted);
    add_pattern(json, &t->words, pattern, read_behavior(json, item));
    t->words.steps[t->words.count - 1].inverted = inverted;
}

static void read_delimiter(napier_json *json, napier_tokenizer *t, const cJSON *item) {
    napier_pattern pattern = {NULL, true};
    napier_json_text(json, item, "delimiter", &pattern.text);
    add_pattern(json, &t->words, pattern, NAPIER_REMOVED);
}

static void read_digits(napier_json *json, napier_tokenizer *t, const cJSON *item) {
    bool alone = false;
    napier_json_bool(json, item, "individual_digits", &alone);
    add_set(json, &t->words, NAPIER_CHARS_OF_DIGITS, alone ? NAPIER_ISOLATED : NAPIER_CONTIGUOUS);
}

static void read_punctuation(napier_json *json, napier_tokenizer *t, const cJSON *item) {
    add_set(json, &t->words, NAPIER_CHARS_OF_PUNCTUATION, read_behavior(json, item));
}

static void read_whitespace_split(napier_json *json, napier_tokenizer *t, const cJSON *item) {
    (void)item;
    add_set(json, &t->words, NAPIER_CHARS_SPACES, NAPIER_REMOVED);
}

static void read_whitespace(napier_json *json, napier_tokenizer *t, const cJSON *item) {
    read_whitespace_split(json, t, item);
    add_set(json, &t->words, NAPIER_CHARS_OF_WORDS, NAPIER_CONTIGUOUS);
}

static void read_bert(napier_json *json, napier_tokenizer *t, const cJSON *item) {
    read_whitespace_split(json, t, item);
    add_set(json, &t->words, NAPIER_CHARS_OF_PUNCTUATION, NAPIER_ISOLATED);
}

/* ---- Bytes and spaces -------------------------------------------------------------------------------------------- */

static void read_byte_level(napier_json *json, napier_tokenizer *t, const cJSON *item) {
    bool adds_space = true, has_pattern = true;
    napier_json_bool(json, item, "add_prefix_space", &adds_space);
    napier_json_bool(json, item, "use_regex", &has_pattern);
    if (!t->vocabulary.of_characters) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: two of ByteLevel", where);
    }
    if (adds_space) {
        napier_word_step *const step = add_step(json, &t->words, NAPIER_WORDS_SPACE);
        step->space = plain_space;
        step->prefix = NAPIER_PREFIX_ALWAYS;
    }
    if (has_pattern) {
        add_pattern(json, &t->words, (napier_pattern){gpt2, false}, NAPIER_ISOLATED);
    }
    add_step(json, &t->words, NAPIER_WORDS_BYTES);
    t->vocabulary.of_characters = false;
}

/* Whether a word is the first depends on its place in the text as given, which a step that adds or removes characters
 * there would change. */
static void check_first(napier_json *json, const napier_tokenizer *t) {
    for (int i = 0; i < t->steps.count; i++) {
        if (t->steps.all[i].kind != NAPIER_STEP_REPLACE || t->steps.all[i].to.size == 0) {
            napier_json_fail(json, NAPIER_UNSUPPORTED,
                             "%s: Metaspace with prepend_scheme first, after a normalizer that moves text", where);
        }
    }
}

napier_prefix napier_load_metaspace(napier_json *json, const cJSON *item, const char *at, napier_short_text *mark) {
    static const char *const schemes[] = {"never", "first", "always"}; /* in the order of napier_prefix */
    const char *scheme = "always";
    bool adds_space = true;
    int k = 0;
    napier_json_text(json, item, "prepend_scheme", &scheme);
    napier_json_bool(json, item, "add_prefix_space", &adds_space); /* of older files */
    napier_load_short(json, item, at, "replacement", mark);
    while (k < 3 && strcmp(scheme, schemes[k]) != 0) {
        k++;
    }
    if (k == 3 || (!adds_space && k != 0)) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: prepend_scheme %s%s", at, napier_show_text(scheme).text,
                         k == 3 ? "" : ", but add_prefix_space is false");
        return NAPIER_PREFIX_NEVER;
    }
    if (mark->size == 0 || mark->size != napier_utf8_length((uint8_t)mark->bytes[0])) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: replacement: not one character", at);
    }
    return (napier_prefix)k;
}

/* It must be the last, because encode.c cuts at the marks. */
static void read_metaspace(napier_json *json, napier_tokenizer *t, const cJSON *item) {
    bool splits = true;
    napier_json_bool(json, item, "split", &splits);
    napier_word_step *const step = add_step(json, &t->words, NAPIER_WORDS_SPACE);
    step->prefix = napier_load_metaspace(json, item, "pre_tokenizer: Metaspace", &step->space);
    step->marks_spaces = true;
    t->words.space = step->space;
    t->words.cut = splits ? NAPIER_CUT_MARKS : NAPIER_CUT_RUNS;
    if (step->prefix == NAPIER_PREFIX_FIRST) {
        check_first(json, t);
    }
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*read)(napier_json *json, napier_tokenizer *t, const cJSON *item);
} kinds[] = {
    {"ByteLevel", read_byte_level},         {"Split", read_split},           {"Digits", read_digits},
    {"Punctuation", read_punctuation},      {"Whitespace", read_whitespace}, {"WhitespaceSplit", read_whitespace_split},
    {"CharDelimiterSplit", read_delimiter}, {"BertPreTokenizer", read_bert}, {"Metaspace", read_metaspace}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void read_item(napier_json *json, napier_tokenizer *t, const cJSON *item, bool *is_marked) {
    if (napier_load_is(json, item, where, "Sequence")) {
        const cJSON *const list = napier_json_member(json, item, "pretokenizers");
        for (const cJSON *one = cJSON_IsArray(list) ? list->child : NULL; one != NULL && !json->status;
             one = one->next) {
            read_item(json, t, one, is_marked);
        }
        return;
    }
    size_t k = 0;
    while (k < KINDS && !json->status && !napier_load_is(json, item, where, kinds[k].name)) {
        k++;
    }
    const bool marks = k == KINDS - 1;
    if (k == KINDS) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: type %s is not supported", where,
                         napier_show_item(napier_json_member(json, item, "type")).text);
    } else if (*is_marked || (marks && !t->vocabulary.of_characters)) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: a step after Metaspace, or Metaspace after ByteLevel", where);
    } else if (!json->status) {
        kinds[k].read(json, t, item);
    }
    *is_marked = *is_marked || marks;
}

/* Compiles all expressions. Before any is, all tell the alphabet which characters they name. */
static napier_status compile(napier_json *json, napier_tokenizer *t) {
    napier_words *const w = &t->words;
    for (int k = 0; k < w->count; k++) {
        if (w->steps[k].kind == NAPIER_WORDS_PATTERN) {
            NAPIER_TRY(napier_split_collect(json, &w->alphabet, w->steps[k].pattern));
        }
    }
    for (int k = 0; k < w->count; k++) {
        napier_word_step *const step = &w->steps[k];
        if (step->kind == NAPIER_WORDS_PATTERN) {
            NAPIER_TRY(napier_split_compile(json, &t->allocator, &w->alphabet, step->pattern, &step->split));
        }
        napier_alphabet_kinds(&w->alphabet, step->kinds, step->members);
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        w->byte_codes[byte] = w->alphabet.codes[napier_byte_character((uint8_t)byte)];
    }
    return NAPIER_OK;
}

void napier_load_pre_tokenizer(napier_json *json, napier_tokenizer *t) {
    const cJSON *const item = napier_json_member(json, json->root, "pre_tokenizer");
    napier_words *const w = &t->words;
    bool is_marked = false;
    w->space = marked_space;
    w->cut = NAPIER_CUT_RUNS;
    t->vocabulary.of_characters = true;
    if (item != NULL) {
        read_item(json, t, item, &is_marked);
    }
    if (!t->vocabulary.of_characters) {
        w->cut = NAPIER_CUT_NONE;
        w->count -= !json->status && w->steps[w->count - 1].kind == NAPIER_WORDS_BYTES; /* nothing follows it */
    }
    if (!json->status) {
        json->status = compile(json, t);
    }
}
