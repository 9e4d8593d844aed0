/* lm/tokenizer/chat/chat_put.c - what the chat templates share: roles, white space. */
#include "lm/tokenizer/chat/chat.h"
#include "lm/tokenizer/unicode.h"

static const char *const role_names[NAPIER_ROLES] = {"system", "user", "assistant", "tool"};

napier_role napier_chat_role(const char *name) {
    int r = 0;
    while (r < NAPIER_ROLES && strcmp(name, role_names[r]) != 0) {
        r++;
    }
    return (napier_role)r;
}

/* The characters that Python's str.isspace() accepts; they are all of at most 3 bytes. */
static bool is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* The size of the white space of `size` bytes at `at`, or 0. The text need not be UTF-8. */
static size_t space_at(const char *at, size_t size) {
    const uint8_t *const bytes = (const uint8_t *)at;
    const size_t length = size > 0 ? napier_utf8_length(bytes[0]) : 4;
    const bool is_whole = length <= size && length < 4 && napier_utf8_check(bytes, length) == length;
    return is_whole && is_space(napier_utf8_get(bytes)) ? length : 0;
}

napier_span napier_chat_trim_start(napier_span s) {
    for (size_t n = space_at(s.bytes, s.size); n > 0; n = space_at(s.bytes, s.size)) {
        s = (napier_span){s.bytes + n, s.size - n};
    }
    return s;
}

napier_span napier_chat_trim_end(napier_span s) {
    for (bool more = true; more;) {
        more = false;
        for (size_t n = 1; n <= 3 && n <= s.size && !more; n++) {
            more = space_at(s.bytes + s.size - n, n) == n;
            s.size -= more ? n : 0;
        }
    }
    return s;
}

napier_span napier_chat_trim(napier_span s) { return napier_chat_trim_end(napier_chat_trim_start(s)); }
