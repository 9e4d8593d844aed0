/* lm/gguf/gguf_document.c - see napier_gguf_document in <napier/model.h>: the documents that a folder of the file's model
 * would hold. */
#include <string.h>

#include "core/base/scope.h"
#include "lm/gguf/gguf.h"
#include "lm/text/buffer.h"

napier_status napier_gguf_document(napier_context *context, const char *path, const char *document,
                                   napier_text_buffer *json) {
    static const struct {
        const char *name;
        napier_status (*write)(napier_gguf *file, napier_text_buffer *json);
    } documents[] = {{"config.json", napier_gguf_config},
                     {"tokenizer.json", napier_gguf_tokenizer},
                     {"tokenizer_config.json", napier_gguf_tokenizer_config}};
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !path || !document, "%s: NULL", path ? "document" : "path");
    NAPIER_TRY(napier_check_text_buffer(context, "json", json));
    const size_t before = json->size;
    size_t i = 0;
    while (i < sizeof documents / sizeof *documents && strcmp(documents[i].name, document) != 0) {
        i++;
    }
    NAPIER_REFUSE_IF(context, i == sizeof documents / sizeof *documents,
                     "document: \"%.40s\" is none of config.json, tokenizer.json and tokenizer_config.json", document);
    napier_gguf file;
    napier_status status = napier_gguf_open(context, path, &file);
    status = status ? status : documents[i].write(&file, json);
    napier_gguf_close(&file);
    json->size = status ? before : json->size;
    return status;
}
