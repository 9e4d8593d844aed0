/* cli/io/members.c - see members.h. */
#include "members.h"

#include "program/message.h"
#include "program/options.h"

#include <stdio.h>
#include <string.h>

#ifdef NAPIER_CJSON
#include <cjson/cJSON.h>

/* Settings of other programs. The option that does the same has the name with dashes, unless another is given. */
static const struct {
    const char *name, *option;
} settings[] = {
    {"temperature", NULL},
    {"top_k", NULL},
    {"top_p", NULL},
    {"min_p", NULL},
    {"seed", NULL},
    {"repetition_penalty", NULL},
    {"presence_penalty", NULL},
    {"frequency_penalty", NULL},
    {"n", "samples"},
    {"num_return_sequences", "samples"},
    {"max_tokens", NULL},
    {"max_completion_tokens", "max-tokens"},
    {"max_new_tokens", "max-tokens"},
    {"min_tokens", NULL},
    {"min_new_tokens", "min-tokens"},
    {"stop", NULL},
    {"stop_strings", "stop"},
    {"stop_token_ids", "stop-id"},
    {"ignore_eos", NULL},
    {"do_sample", "temperature"},
    {"chat_template", "chat-format"},
    {"chat_template_kwargs", "no-thinking"},
    {"enable_thinking", "no-thinking"},
    {"functions", NULL},
    {"function_call", NULL},
    {"tool_choice", NULL},
    {"sampling_params", NULL},
    {"extra_body", NULL},
    {"best_of", NULL},
    {"num_beams", NULL},
    {"logit_bias", NULL},
    {"logprobs", NULL},
    {"top_logprobs", NULL},
    {"prompt_logprobs", NULL},
    {"bad_words", NULL},
    {"allowed_token_ids", NULL},
    {"response_format", NULL},
    {"structured_outputs", NULL},
    {"guided_json", NULL},
    {"guided_regex", NULL},
    {"guided_choice", NULL},
    {"guided_grammar", NULL},
    {"suffix", NULL},
};

static bool is_in(const char *const *names, const char *name) {
    while (*names != NULL && strcmp(*names, name) != 0) {
        names++;
    }
    return *names != NULL;
}

/* Finds out whether a member is a setting, and the option of this command that does the same: NULL if it has none. */
static bool is_setting(const cJSON *member, bool runs_model, const option **same) {
    const bool is_data = strcmp(member->string, "logprobs") == 0 && cJSON_IsArray(member); /* results, not a request */
    *same = options_find(member->string);
    for (size_t i = 0; runs_model && !is_data && i < sizeof settings / sizeof *settings; i++) {
        if (strcmp(member->string, settings[i].name) == 0) {
            *same = settings[i].option != NULL ? options_find(settings[i].option) : *same;
            return true;
        }
    }
    return *same != NULL &&
           ((*same)->kind == OPTION_NUMBER || (*same)->kind == OPTION_INTEGER || (*same)->kind == OPTION_WORD);
}

static void note(member_notes *notes, const char *name) {
    char shown[MEMBERS_SHOWN];
    printable(shown, sizeof shown, name, strlen(name));
    for (int i = 0; i < notes->count && i < MEMBERS_NAMED; i++) {
        if (strcmp(notes->names[i], shown) == 0) {
            return;
        }
    }
    if (notes->count < MEMBERS_NAMED) {
        memcpy(notes->names[notes->count], shown, sizeof shown);
    }
    notes->count += notes->count <= MEMBERS_NAMED;
}

const char *members_check(member_notes *notes, const cJSON *object, const char *const *used, bool runs_model,
                          char text[MEMBERS_TEXT]) {
    for (const cJSON *member = object->child; member != NULL; member = member->next) {
        const option *same;
        if (cJSON_IsNull(member) || is_in(used, member->string)) {
            continue;
        }
        if (!is_setting(member, runs_model, &same)) {
            note(notes, member->string);
            continue;
        }
        snprintf(text, MEMBERS_TEXT,
                 same != NULL ? "'%s' is a setting of the whole run: give it as --%s, or leave it out"
                              : "'%s' is a setting that this command does not have; leave it out",
                 member->string, same != NULL ? same->name : "");
        return text;
    }
    return NULL;
}

#endif

void members_warn(const member_notes *notes, const char *file) {
    char text[MEMBERS_NAMED * (MEMBERS_SHOWN + 2) + 16] = "";
    size_t size = 0;
    for (int i = 0; i < notes->count; i++) {
        size += (size_t)snprintf(text + size, sizeof text - size, "%s%s",
                                 i == 0              ? ""
                                 : i < MEMBERS_NAMED ? ", "
                                                     : " and others",
                                 i < MEMBERS_NAMED ? notes->names[i] : "");
    }
    if (notes->count > 0) {
        warn("%s: not used: %s", file, text);
    }
}
