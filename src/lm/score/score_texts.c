/* lm/score/score_texts.c - encodes texts to ragged lists of ids. */
#include <inttypes.h>
#include <napier/model.h>
#include <stdio.h>

#include "core/base/context.h"
#include "core/base/scope.h"

static napier_status check(napier_context *context, const napier_text *texts, int64_t count,
                           const napier_token_buffer *ids, const int64_t *offsets) {
    NAPIER_REFUSE_IF(context, count < 0, "count: %" PRId64 " is negative", count);
    const char *absent = !ids ? "ids" : !offsets ? "offsets" : !texts && count > 0 ? "texts" : NULL;
    return absent ? napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: NULL", absent) : NAPIER_OK;
}

napier_status napier_model_encode_texts(napier_context *context, const napier_tokenizer *tokenizer,
                                        const napier_text *texts, int64_t count, const napier_encode_options *options,
                                        napier_token_buffer *ids, int64_t *offsets) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(check(context, texts, count, ids, offsets));
    napier_status status = NAPIER_OK;
    ids->size = 0;
    offsets[0] = 0;
    for (int64_t i = 0; i < count && !status; i++) {
        status = napier_tokenizer_encode(context, tokenizer, texts[i].bytes, texts[i].size, options, ids);
        offsets[i + 1] = ids->size;
        if (status) {
            char text[NAPIER_ERROR_TEXT];
            (void)snprintf(text, sizeof text, "%s", napier_last_error(context));
            status = napier_fail(context, status, "texts[%" PRId64 "]: %s", i, text);
        }
    }
    return status;
}
