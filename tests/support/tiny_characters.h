/* support/tiny_characters.h - a small tokenizer.json over characters, as Llama 2's: pieces, the 256 bytes, and spaces as
 * U+2581. Its parts can be others. */
#ifndef NAPIER_TESTS_TINY_CHARACTERS_H
#define NAPIER_TESTS_TINY_CHARACTERS_H

#include <stdio.h>

enum { CHARACTERS_ROOM = 16384 };

#define MARK "\xe2\x96\x81" /* U+2581 */
#define LEGACY                                                                                \
    "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"" MARK \
    "\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" MARK "\"}]}"
#define METASPACE(scheme, split) \
    "{\"type\": \"Metaspace\", \"replacement\": \"" MARK "\", \"prepend_scheme\": \"" scheme "\", \"split\": " split "}"
#define ENDS                                                                                               \
    "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"" MARK    \
    "\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": \"Strip\", " \
    "\"content\": \" \", \"start\": 1, \"stop\": 0}]}"
#define BOS                                                                                                            \
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, "          \
    "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", " \
    "\"ids\": [1], \"tokens\": [\"<s>\"]}}}"

/* The parts of a file in Llama 2's form. */
typedef struct character_parts {
    const char *normalizer, *pre_tokenizer, *post_processor, *decoder, *model, *merges;
} character_parts;

#define LLAMA2_PARTS                                                                                            \
    {                                                                                                           \
        LEGACY, "null", BOS, ENDS, "\"unk_token\": \"<unk>\", \"fuse_unk\": true, \"byte_fallback\": true",     \
            "\"" MARK " a\", \"b c\", \"" MARK "a bc\", \"" MARK " " MARK "\", \"" MARK MARK " " MARK MARK "\"" \
    }

/* Writes the file, ended by 0, and returns its size, or 0 if it does not fit. <unk> 0, <s> 1, </s> 2, the bytes from 3,
 * U+2581 259, a 260, b 261, c 262, U+00E9 263, _a 264, bc 265, _abc 266, __ 267, ____ 268, a_ 269, [INST] 270. */
static inline size_t characters_text(const character_parts *p, char *text, size_t room) {
    size_t used = (size_t)snprintf(
        text, room,
        "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true, "
        "\"normalized\": false}, "
        "{\"id\": 2, \"content\": \"</s>\", \"special\": true, \"normalized\": false}, {\"id\": 270, \"content\": "
        "\"[INST]\", "
        "\"special\": false, \"normalized\": false}], \"normalizer\": %s, \"pre_tokenizer\": %s, \"post_processor\": "
        "%s, "
        "\"decoder\": %s, \"model\": {\"type\": \"BPE\", %s, \"merges\": [%s], \"vocab\": {\"<unk>\": 0, \"<s>\": 1, "
        "\"</s>\": 2",
        p->normalizer, p->pre_tokenizer, p->post_processor, p->decoder, p->model, p->merges);
    if (used + CHARACTERS_ROOM / 2 > room) { /* more than what follows takes */
        return 0;
    }
    for (int byte = 0; byte < 256; byte++) {
        used += (size_t)snprintf(text + used, room - used, ", \"<0x%02X>\": %d", (unsigned)byte, 3 + byte);
    }
    static const char *const pieces[] = {MARK,       "a",  "b",          "c",         "\xc3\xa9",
                                         (MARK "a"), "bc", (MARK "abc"), (MARK MARK), (MARK MARK MARK MARK),
                                         ("a" MARK)};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        used += (size_t)snprintf(text + used, room - used, ", \"%s\": %zu", pieces[i], 259 + i);
    }
    used += (size_t)snprintf(text + used, room - used, "}}}");
    return used < room ? used : 0;
}

#endif
