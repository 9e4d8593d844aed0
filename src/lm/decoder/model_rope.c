/* lm/decoder/model_rope.c - the fields of config.json that define the angles of positions. They are at the top level and
 * in rope_scaling (transformers 4), or all in rope_parameters (5). */
#include <math.h>
#include <napier/layers.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "lm/decoder/model_config.h"
#include "lm/text/json.h"

static const int64_t most_positions = INT32_MAX;

/* ---- The kind ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    napier_rotary_scaling scaling;
} kinds[] = {{"default", NAPIER_ROTARY_DEFAULT},
             {"linear", NAPIER_ROTARY_LINEAR},
             {"llama3", NAPIER_ROTARY_LLAMA3},
             {"yarn", NAPIER_ROTARY_YARN}};

/* rope_type, which was once called type. */
static int64_t kind_of(napier_json *json, const cJSON *rope) {
    const char *const key = napier_json_member(json, rope, "rope_type") ? "rope_type" : "type", *name = "default";
    napier_json_text(json, rope, key, &name);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            return kinds[i].scaling;
        }
    }
    napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: \"%s\", but only default, linear, llama3 or yarn is supported", key,
                     napier_show_text(name).text);
    return NAPIER_ROTARY_DEFAULT;
}

static void check_fraction(napier_json *json, const cJSON *object) {
    double fraction = 1;
    napier_json_number(json, object, "partial_rotary_factor", &fraction);
    if (fraction != 1) {
        napier_json_fail(json, NAPIER_UNSUPPORTED, "partial_rotary_factor: %g, but only 1 is supported", fraction);
    }
}

/* rope_scaling or rope_parameters; NULL if it is absent. */
static const cJSON *rope_of(napier_json *json, const char *key) {
    const cJSON *const rope = napier_json_member(json, json->root, key);
    const cJSON *item;
    if (rope == NULL) {
        return NULL;
    }
    check_fraction(json, rope); /* fails if it is no object */
    cJSON_ArrayForEach(item, rope) {
        if (cJSON_IsObject(item)) { /* one rope for each layer type */
            napier_json_fail(json, NAPIER_UNSUPPORTED, "%s: %s, but only one rope for all layers is supported",
                             napier_show_text(item->string).text, napier_show_item(item).text);
        }
    }
    return rope;
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* All places where rope_theta is given must agree. */
static void read_theta(napier_json *json, const cJSON *object, double *theta) {
    double here = (double)NAN;
    if (object == NULL) {
        return;
    }
    napier_json_number(json, object, "rope_theta", &here);
    if (here != *theta && !isnan(*theta) && !isnan(here)) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "rope_theta: %g, but %g in rope_scaling or rope_parameters", *theta,
                         here);
    }
    *theta = isnan(here) ? *theta : here;
}

/* transformers takes a missing length of the training from max_position_embeddings. */
static void read_original(napier_json *json, const cJSON *rope, const napier_model_config *config,
                          napier_rotary_options *out) {
    static const char *const key = "original_max_position_embeddings";
    out->original_max_position_embeddings = config->max_position_embeddings;
    napier_json_integer(json, rope, key, 1, most_positions, &out->original_max_position_embeddings);
    napier_json_integer(json, json->root, key, 1, most_positions, &out->original_max_position_embeddings);
}

static void read_factor(napier_json *json, const cJSON *rope, const napier_model_config *config,
                        napier_rotary_options *out) {
    const double positions = (double)config->max_position_embeddings;
    out->factor = (double)NAN;
    if (out->scaling == NAPIER_ROTARY_YARN && positions > 0 && out->original_max_position_embeddings > 0) {
        out->factor = positions / (double)out->original_max_position_embeddings;
    }
    napier_json_number(json, rope, "factor", &out->factor);
    if (isnan(out->factor)) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "factor: missing");
    }
}

static void read_yarn(napier_json *json, const cJSON *rope, napier_rotary_options *out) {
    bool truncate = true;
    napier_json_number(json, rope, "beta_fast", &out->beta_fast);
    napier_json_number(json, rope, "beta_slow", &out->beta_slow);
    napier_json_number(json, rope, "mscale", &out->mscale);
    napier_json_number(json, rope, "mscale_all_dim", &out->mscale_all_dim);
    napier_json_number(json, rope, "attention_factor", &out->attention_factor);
    napier_json_bool(json, rope, "truncate", &truncate);
    out->truncate = truncate;
}

static void read_scaling(napier_json *json, const cJSON *rope, const napier_model_config *config,
                         napier_rotary_options *out) {
    out->scaling = kind_of(json, rope);
    if (out->scaling == NAPIER_ROTARY_DEFAULT) {
        return;
    }
    read_original(json, rope, config, out);
    read_factor(json, rope, config, out);
    if (out->scaling == NAPIER_ROTARY_LLAMA3) {
        napier_json_number(json, rope, "low_freq_factor", &out->low_freq_factor);
        napier_json_number(json, rope, "high_freq_factor", &out->high_freq_factor);
    }
    if (out->scaling == NAPIER_ROTARY_YARN) {
        read_yarn(json, rope, out);
    }
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

/* The operation knows which numbers it takes. */
static void check(napier_json *json, const napier_rotary_options *rotary) {
    float inverse;
    double scale = 0;
    char text[NAPIER_ERROR_TEXT];
    const napier_vector one = {&inverse, 1, 1, NAPIER_F32};
    if (json->status) {
        return;
    }
    if (napier_rotary_frequencies(json->context, rotary, one, &scale)) {
        (void)snprintf(text, sizeof text, "%s", napier_last_error(json->context));
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "rope: %s", text);
    } else if (!isfinite((float)scale)) {
        napier_json_fail(json, NAPIER_CORRUPT_DATA, "rope: the attention factor is %g", scale);
    }
}

void napier_model_read_rope(napier_json *json, napier_model_config *config) {
    napier_rotary_options *const rotary = &config->rotary;
    const cJSON *const old = rope_of(json, "rope_scaling"), *const parameters = rope_of(json, "rope_parameters");
    double theta = (double)NAN;
    *rotary = (napier_rotary_options)NAPIER_ROTARY_OPTIONS_INIT; /* theta: the default of all families */
    check_fraction(json, json->root);
    read_theta(json, json->root, &theta);
    read_theta(json, old, &theta);
    read_theta(json, parameters, &theta);
    rotary->theta = isnan(theta) ? rotary->theta : theta;
    if (old != NULL && old->child != NULL) { /* precedes rope_parameters, as in transformers */
        read_scaling(json, old, config, rotary);
    } else if (parameters != NULL) {
        read_scaling(json, parameters, config, rotary);
    }
    check(json, rotary);
}
