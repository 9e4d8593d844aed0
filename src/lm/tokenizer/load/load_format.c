/* lm/tokenizer/load/load_format.c - names other formats of tokenizers, and the command that converts them. */
#include <string.h>
#include <unistd.h>

#include "core/base/scope.h"
#include "lm/text/file.h"
#include "lm/tokenizer/tokenizer.h"

/* A line such as "IQ== 0": a token in base 64, and its rank. */
static bool is_tiktoken(const char *text) {
    const size_t token = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=");
    const size_t rank = text[token] == ' ' ? strspn(text + token + 1, "0123456789") : 0;
    return token > 0 && rank > 0 && text[token + 1 + rank] == '\n';
}

/* A message of pieces; the first is a message too, whose first field is a text such as "<unk>". */
static bool is_sentencepiece(const char *text) { return text[0] == '\n' && text[2] == '\n' && text[4] == '<'; }

/* `text` is the beginning of a file, and ends with 0. */
static const char *format_of(const char *text) {
    if (is_tiktoken(text)) {
        return "tiktoken";
    }
    if (strlen(text) > 4 && is_sentencepiece(text)) {
        return "sentencepiece";
    }
    return *text == '{' && strstr(text, "\"default_num_special_tokens\"") != NULL ? "tekken" : NULL;
}

napier_status napier_load_check_format(napier_context *context, const char *path) {
    char text[2048] = "";
    int fd;
    size_t size;
    NAPIER_TRY(napier_open_file(context, path, &fd, &size));
    const ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    const char *const format = got > 0 ? format_of(text) : NULL;
    if (format == NULL) {
        return NAPIER_OK;
    }
    /* The path comes last, because a message has 256 bytes. */
    return napier_fail(context, NAPIER_UNSUPPORTED,
                       "no tokenizer.json but %s; python -c \"from transformers import AutoTokenizer as A; "
                       "A.from_pretrained('FOLDER').save_pretrained('FOLDER')\" makes one: %s",
                       format, path);
}
