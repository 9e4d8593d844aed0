/* lm/tokenizer/chat/chat_llama.c - the formats of Llama 2, Llama 3, Llama 3.1 to 3.3, and Mistral, as the published templates
 * write them; tests/peers renders the same conversations with Jinja. */
#include "lm/tokenizer/chat/chat.h"

#include <stdio.h>

/* ---- Llama 3 ----------------------------------------------------------------------------------------------------- */

static void put_header(napier_chat *c, const char *role) {
    napier_chat_put(c, "<|start_header_id|>");
    napier_chat_put(c, role);
    napier_chat_put(c, "<|end_header_id|>\n\n");
}

static void put_turn(napier_chat *c, int64_t i) {
    put_header(c, c->messages[i].role);
    napier_chat_put_span(c, napier_chat_trim(napier_chat_content(c, i)));
    napier_chat_put(c, "<|eot_id|>");
}

void napier_chat_llama3(napier_chat *c) {
    napier_chat_put(c, c->count > 0 ? "<|begin_of_text|>" : "");
    for (int64_t i = 0; i < c->count; i++) {
        if (c->messages[i].tool_call_count > 0) {
            napier_chat_refuse(c, i, "tool_calls in");
        }
        put_turn(c, i);
    }
    if (c->options->add_generation_prompt) {
        put_header(c, "assistant");
    }
}

/* ---- Llama 3.1 --------------------------------------------------------------------------------------------------- */

static void put_call(napier_chat *c, int64_t i) {
    const napier_tool_call *const call = c->messages[i].tool_calls;
    if (c->messages[i].tool_call_count > 1) {
        napier_chat_refuse(c, i, "more than one of tool_calls in");
    }
    if (c->messages[i].size > 0) { /* the template drops it without a word */
        napier_chat_refuse(c, i, "content beside tool_calls in");
    }
    put_header(c, "assistant");
    napier_chat_put(c, "{\"name\": \"");
    napier_chat_put_span(c, (napier_span){call->name, call->name_size});
    napier_chat_put(c, "\", \"parameters\": ");
    napier_chat_put_span(c, (napier_span){call->arguments, call->arguments_size});
    napier_chat_put(c, "}<|eot_id|>");
}

/* A text as a JSON string, as Python's json.dumps writes it with ensure_ascii=False. */
static void put_json(napier_chat *c, napier_span text) {
    static const char plain[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf";
    napier_chat_put(c, "\"");
    for (size_t at = 0, done = 0; at <= text.size; at++) {
        const char byte = at < text.size ? text.bytes[at] : ' ';
        const char *const short_form = byte != '\0' ? strchr(plain, byte) : NULL;
        if (at < text.size && short_form == NULL && (unsigned char)byte >= 0x20) {
            continue;
        }
        char escape[8] = "";
        if (at < text.size) {
            snprintf(escape, sizeof escape, short_form != NULL ? "\\%c" : "\\u%04x",
                     short_form != NULL ? names[short_form - plain] : byte);
        }
        napier_chat_put_span(c, (napier_span){text.bytes + done, at - done});
        napier_chat_put(c, escape);
        done = at + 1;
    }
    napier_chat_put(c, "\"");
}

/* The template writes a text of a tool as JSON. */
static void put_result(napier_chat *c, int64_t i) {
    put_header(c, "ipython");
    put_json(c, napier_chat_content(c, i));
    napier_chat_put(c, "<|eot_id|>");
}

void napier_chat_llama3_1(napier_chat *c) {
    const bool has_system = napier_chat_is(c, 0, NAPIER_SYSTEM);
    napier_chat_put(c, "<|begin_of_text|>");
    put_header(c, "system");
    napier_chat_put(c, "Cutting Knowledge Date: December 2023\nToday Date: ");
    napier_chat_put(c, c->options->date != NULL ? c->options->date : "26 Jul 2024"); /* the template's own */
    napier_chat_put(c, "\n\n");
    if (has_system) {
        napier_chat_put_span(c, napier_chat_trim(napier_chat_content(c, 0)));
    }
    napier_chat_put(c, "<|eot_id|>");
    for (int64_t i = has_system; i < c->count; i++) {
        if (c->messages[i].tool_call_count > 0) {
            put_call(c, i);
        } else if (napier_chat_is(c, i, NAPIER_TOOL)) {
            put_result(c, i);
        } else {
            put_turn(c, i);
        }
    }
    if (c->options->add_generation_prompt) {
        put_header(c, "assistant");
    }
}

/* ---- Llama 2 and Mistral ----------------------------------------------------------------------------------------- */

/* Refuses what the templates refuse: turns that do not alternate, from the user's on. */
static bool check_turn(napier_chat *c, int64_t i, bool is_user) {
    if (!napier_chat_is(c, i, is_user ? NAPIER_USER : NAPIER_ASSISTANT) || c->messages[i].tool_call_count > 0) {
        napier_chat_refuse(c, i,
                           c->messages[i].tool_call_count > 0 ? "tool_calls in"
                           : is_user                          ? "this turn is the user's, and"
                                                              : "this turn is the assistant's, and");
    }
    return c->status == NAPIER_OK;
}

/* The system's text is a part of the first question. White space around the whole is removed. */
static void put_question(napier_chat *c, int64_t i, bool has_system) {
    const napier_span content = napier_chat_content(c, i), trimmed = napier_chat_trim(content);
    napier_chat_put(c, "<s>[INST] ");
    if (has_system && i == 1) {
        const size_t end = (size_t)(trimmed.bytes + trimmed.size - content.bytes);
        napier_chat_put(c, "<<SYS>>\n");
        napier_chat_put_span(c, napier_chat_content(c, 0));
        napier_chat_put(c, trimmed.size > 0 ? "\n<</SYS>>\n\n" : "\n<</SYS>>");
        napier_chat_put_span(c, trimmed.size > 0 ? (napier_span){content.bytes, end} : trimmed);
    } else {
        napier_chat_put_span(c, trimmed);
    }
    napier_chat_put(c, " [/INST]");
}

void napier_chat_llama2(napier_chat *c) {
    const bool has_system = napier_chat_is(c, 0, NAPIER_SYSTEM);
    bool is_user = true;
    for (int64_t i = has_system; i < c->count && check_turn(c, i, is_user); i++, is_user = !is_user) {
        if (is_user) {
            put_question(c, i, has_system);
            continue;
        }
        napier_chat_put(c, " ");
        napier_chat_put_span(c, napier_chat_trim(napier_chat_content(c, i)));
        napier_chat_put(c, " </s>");
    }
}

/* Version 0.1 has a space after each answer, and 0.2 has none. */
void napier_chat_mistral(napier_chat *c) {
    bool is_user = true;
    napier_chat_put(c, "<s>");
    for (int64_t i = 0; i < c->count && check_turn(c, i, is_user); i++, is_user = !is_user) {
        napier_chat_put(c, is_user ? "[INST] " : "");
        napier_chat_put_span(c, napier_chat_content(c, i));
        napier_chat_put(c, is_user ? " [/INST]" : c->options->format == NAPIER_CHAT_MISTRAL_V0_1 ? "</s> " : "</s>");
    }
}
