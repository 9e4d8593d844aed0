/* support/sample_setting.h - a way to draw ids, as the tables of tests have it. */
#ifndef NAPIER_TESTS_SAMPLE_SETTING_H
#define NAPIER_TESTS_SAMPLE_SETTING_H

#include <napier/sample.h>
#include <stdbool.h>

typedef struct sample_setting {
    double temperature;
    int64_t top_k;
    double top_p, min_p, repetition, presence, frequency;
    bool keep;
} sample_setting;

/* The options of a setting, without lists. */
static inline napier_sample_options sample_setting_options(const sample_setting *s, const uint8_t *keep) {
    napier_sample_options o = NAPIER_SAMPLE_OPTIONS_INIT;
    o.temperature = s->temperature;
    o.top_k = s->top_k;
    o.top_p = s->top_p;
    o.min_p = s->min_p;
    o.repetition_penalty = s->repetition;
    o.presence_penalty = s->presence;
    o.frequency_penalty = s->frequency;
    o.keep = s->keep ? keep : NULL;
    return o;
}

#endif
