/* lm/tokenizer/load/load_steps.c - reads the normalizer. */
#include "lm/tokenizer/tokenizer.h"

#include <string.h>

#include <cjson/cJSON.h>

/* Those without members, in the order of their enums. */
static const struct {
    const char *name;
    napier_step_kind kind;
    napier_form form;
} plain_steps[] = {{"NFC", NAPIER_STEP_FORM, NAPIER_NFC},
                   {"NFD", NAPIER_STEP_FORM, NAPIER_NFD},
                   {"NFKC", NAPIER_STEP_FORM, NAPIER_NFKC},
                   {"NFKD", NAPIER_STEP_FORM, NAPIER_NFKD},
                   {"Lowercase", NAPIER_STEP_LOWERCASE, NAPIER_NFC},
                   {"StripAccents", NAPIER_STEP_STRIP_ACCENTS, NAPIER_NFC}};
enum { PLAIN_STEPS = sizeof plain_steps / sizeof plain_steps[0] };

static void read_step(napier_json *json, napier_steps *steps, const cJSON *item) {
    if (steps->count == NAPIER_MOST_STEPS) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "normalizer: more than %d steps", NAPIER_MOST_STEPS);
        return;
    }
    napier_step *const step = &steps->all[steps->count++];
    for (size_t i = 0; i < PLAIN_STEPS; i++) {
        if (napier_load_is(json, item, "normalizer", plain_steps[i].name)) {
            step->kind = plain_steps[i].kind;
            step->form = plain_steps[i].form;
            return;
        }
    }
    if (napier_load_is(json, item, "normalizer", "Prepend")) {
        step->kind = NAPIER_STEP_PREPEND;
        napier_load_short(json, item, "normalizer: Prepend", "prepend", &step->to);
    } else if (napier_load_is(json, item, "normalizer", "Replace")) {
        napier_load_replace(json, item, "normalizer: Replace", step);
    } else if (napier_load_is(json, item, "normalizer", "Strip")) {
        step->kind = NAPIER_STEP_STRIP;
        napier_json_bool(json, item, "strip_left", &step->left);
        napier_json_bool(json, item, "strip_right", &step->right);
    } else {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "normalizer: type %s is not supported",
                         napier_show_item(napier_json_member(json, item, "type")).text);
    }
}

static void read_steps(napier_json *json, napier_steps *steps, const cJSON *item) {
    if (!napier_load_is(json, item, "normalizer", "Sequence")) {
        read_step(json, steps, item);
        return;
    }
    const cJSON *const list = napier_json_member(json, item, "normalizers");
    for (const cJSON *step = cJSON_IsArray(list) ? list->child : NULL; step != NULL && !json->status;
         step = step->next) {
        read_steps(json, steps, step);
    }
}

void napier_load_normalizer(napier_json *json, napier_tokenizer *t) {
    const cJSON *const item = napier_json_member(json, json->root, "normalizer");
    if (item == NULL) {
        return;
    }
    read_steps(json, &t->steps, item);
}
