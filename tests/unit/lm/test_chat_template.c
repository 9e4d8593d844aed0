/* test_chat_template - chat templates that are run: what each part of Jinja writes, white space, what is refused, and the
 * limits. tests/peers compares published templates with jinja2. */
#include <string.h>

#include "support/memory.h"
#include "unit/lm/lm_support.h"

static napier_context *context;

#define MESSAGE(who, text) \
    { .role = who, .content = text, .size = sizeof(text) - 1 }

static const napier_chat_message talk[] = {MESSAGE("system", "Be kind."), MESSAGE("user", " H\xc3\xa9llo\n"),
                                           MESSAGE("assistant", "Yo")};

static napier_status render(const char *source, napier_text_buffer *text) {
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    napier_chat_template *made = NULL;
    succeeded(context, napier_chat_template_create(context, source, strlen(source), "<s>", "</s>", &made), source);
    options.chat_template = made;
    options.tools = "{\"f\": [1, 2.50, true, null, {\"a\": \"\\u00e9\\\"\"}]}\n{}";
    options.tools_size = strstr(source, "tools") != NULL ? strlen(options.tools) : 0;
    const napier_status status = napier_chat_text(context, talk, 3, &options, text);
    napier_chat_template_destroy(context, made);
    return status;
}

/* ---- What is written --------------------------------------------------------------------------------------------- */

static const char *const written[][2] = {
    {"", ""},
    {"a\n", "a"}, /* jinja2 takes the last line feed */
    {"{{ bos_token }}{{ messages[1].content }}{{ eos_token }}", "<s> H\xc3\xa9llo\n</s>"},
    {"{% for m in messages %}{{ loop.index }}{{ m['role'][0] }}{% if not loop.last %},{% endif %}{% endfor %}",
     "1s,2u,3a"},
    /* white space: trim_blocks, lstrip_blocks, - and + */
    {"a\n  {% if true %}\n b\n  {% endif %}\nc", "a\n b\nc"},
    {"a {%- if true -%} \n b {%- endif %} c", "ab c"},
    {"a\n  {%+ if true +%}\nb{% endif %}", "a\n  \nb"},
    {"{# a -#}  b\r\n{#- c #}\nd", "bd"},
    {"{{ 'a' -}} \n {{- 'b' }}\n\nc", "ab\n\nc"},
    {"x {{ '}}' }} {{ {'a': {'b': '%}'}}.a.b }}", "x }} %}"},
    /* expressions */
    {"{{ 1 + 2 * 3 - 4 // 3 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 1.0 * 3 }} {{ 'ab' * 2 }}",
     "6 -4 2 3.5 3.0 abab"},
    {"{{ 'a' 'b' + 'c' ~ 1 ~ none ~ true }}", "abc1NoneTrue"},
    {"{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' in 'cat' }} {{ 'b' not in ['a'] }} {{ not 1 == 2 }}",
     "True False True True True"},
    {"{{ 'a' if false }}{{ 'b' if 1 else 'c' }}{{ 'd' if 0 else 'e' if 0 else 'f' }}", "bf"},
    {"{{ undefined_one or 'x' }}{{ '' and undefined_two.member }}{{ nothing }}", "x"},
    {"{{ 'abcdef'[1:3] }}{{ 'abc'[-1] }}{{ 'abc'[::-1] }}{{ messages[1:] | length }}{{ messages[1].content[:3] }}|",
     "bcccba2 H\xc3\xa9|"},
    {"{{ [1, 'a', none, {'k': (1, 2.5)}] }}{{ 'it''s' }}{{ ['it\\'s'] }}",
     "[1, 'a', None, {'k': (1, 2.5)}]its[\"it's\"]"},
    {"{{ '\\n\\t\\x41\\u00e9\\\\' }}{{ \"q'\\\"\" }}\\n", "\n\tA\xc3\xa9\\q'\"\\n"},
    {"{{ messages is iterable }}{{ messages[0] is mapping }}{{ x is defined }}{{ 3 is divisibleby 3 }}{{ 'a' is not "
     "none }}",
     "TrueTrueFalseTrueTrue"},
    {"{{ '%s: %d%%' % ('a', 2) }} {{ '<%s>' % [1] }} {{ (1,) }} {{ (1,) == [1] }}", "a: 2% <[1]> (1,) False"},
    {"{{ 1e3 }} {{ 0.1 }} {{ 1e20 }} {{ 0.00001 }}", "1000.0 0.1 1e+20 1e-05"},
    /* statements */
    {"{% set a, b = 1, 2 %}{% set c %}<{{ a }}{{ b }}>{% endset %}{{ c }}", "<12>"},
    {"{% set x = 1 %}{% for i in [1, 2] %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "121"},
    {"{% set ns = namespace(x=0) %}{% for i in range(5) if i is odd %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
     "4"},
    {"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}{% for i in [] %}{% else %}none{% endfor %}",
     "a1b2none"},
    {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
     "02"},
    {"{% macro f(a, b='x') %}[{{ a }}{{ b }}{{ hidden }}]{% endmacro %}{% for hidden in [1] %}{{ f(1) }}{{ f(b=2, a=3) "
     "}}{% endfor %}",
     "[1x][32]"},
    {"{% generation %}a{% endgeneration %}", "a"},
    /* filters and methods */
    {"{{ ' a ' | trim | upper }}{{ 'a b'.title() }}{{ 'x'.join(['a', 'b']) }}{{ 'a,b,c'.split(',', 1) | last }}",
     "AA Baxbb,c"},
    {"{{ '  a  b '.split() }}{{ '<t>x'.split('>')[-1].strip('x') }}|{{ 'aXbX'.replace('X', '..') }}",
     "['a', 'b']|a..b.."},
    {"{{ nothing | default('d') }}{{ '' | default('e', true) }}{{ [3, 3] | unique | first }}{{ [1, 2] | join('-') }}",
     "de31-2"},
    {"{{ messages | map(attribute='role') | join(' ') }}{{ messages | selectattr('role', 'equalto', 'user') | list | "
     "length }}",
     "system user assistant1"},
    {"{{ messages | rejectattr('role', 'in', ['user']) | map(attribute='content') | list }}", "['Be kind.', 'Yo']"},
    {"{{ tools | length }}{{ tools[0] | tojson }}", "2{\"f\": [1, 2.5, true, null, {\"a\": \"\xc3\xa9\\\"\"}]}"},
    {"{{ {'a': [1], 'b': {}} | tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}"},
    {"{{ 'abc'.startswith(('x', 'ab')) }}{{ 'abc'.find('c') }}{{ 'aa'.count('a') }}{{ '\xc3\xa9x'.find('x') }}",
     "True221"},
    {"{{ {'b': 1, 'A': 2} | dictsort }}{{ '3' | int + 1 }}{{ messages[0].get('none', 'x') }}",
     "[('A', 2), ('b', 1)]4x"},
};

static void what_is_written(void) {
    napier_text_buffer text = {0};
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
        const size_t size = strlen(written[i][1]);
        text.size = 0;
        const napier_status status = render(written[i][0], &text);
        expect(status == NAPIER_OK, "%s: %s", written[i][0], napier_last_error(context));
        expect(text.size == size && (size == 0 || memcmp(text.bytes, written[i][1], size) == 0), "%s: %.*s",
               written[i][0], (int)text.size, text.bytes);
    }
    napier_text_buffer_free(context, &text);
}

/* ---- What is refused --------------------------------------------------------------------------------------------- */

/* A template, and a part of the message. */
static const char *const cannot[][2] = {
    {"a\n{% include 'x' %}", "line 2: the statement 'include' is not supported"},
    {"{% import 'x' as y %}", "'import'"},
    {"{% filter upper %}a{% endfilter %}", "'filter'"},
    {"{{ 'a' | pprint }}", "the filter 'pprint' of a text"},
    {"{{ ''.__class__ }}{{ ''.__class__.__mro__ }}", "'__mro__' of an undefined value"},
    {"{% autoescape true %}{% endautoescape %}", "the statement 'autoescape' is not supported"},
    {"{{ messages | groupby('role') }}", "the filter 'groupby' of a list"},
    {"{{ '{0.__class__}'.format(1) }}", "a format asks for '0.__class__'"},
    {"{{ '{:{w}}'.format(1, w=9) }}", "a format with '{w'"},
    {"{{ '{:1001}'.format(1) }}{{ '%1001d' % 1 }}", "more than 1000"},
    {"{{ '{'.format(1) }}", "a single brace"},
    {"{{ [1, 'a'] | sort }}", "an integer > a text"},
    {"{{ messages.append(1) }}", "the method append of a list"},
    {"{{ messages[0].update({}) }}", "the method update of a dict"},
    {"{{ messages[0].items }}", "the method items of a dict, which is not called"},
    {"{{ cycler(1) }}", "'cycler' is no function"},
    {"{{ strftime_now('%Y') }}", "'strftime_now' is no function"},
    {"{{ '%x' % 1 }}", "a format with x of an integer"},
    {"{{ '%s' % (1, 2) }}", "a format does not take the 2 values"},
    {"{{ 'a' + 1 }}", "a text + an integer"},
    {"{{ 'a' + none }}", "a text + none"},
    {"{{ nothing.x }}", "'x' of an undefined value"},
    {"{{ 2 ** 3 }}", "the operator **"},
    {"{{ 1 // 0 }}", "a division by 0"},
    {"{{ 999999999999999999 * 999 }}", "62 bits"},
    {"{{ 99999999999999999999 }}", "18 digits"},
    {"{% if %}a{% endif %}", "a value is wanted"},
    {"{% if 1 %}a", "endif is missing"},
    {"{% for a in b %}{% endif %}{% endfor %}", "'endif' without its beginning"},
    {"{{ 'a", "a text in quotes has no end"},
    {"{{ 'a' ", "a tag has no end"},
    {"{# a", "a comment has no end"},
    {"{{ a ? b }}", "the character ?"},
    {"{{ a b }}", "}} is wanted before 'b'"},
    {"{% set x.y = 1 %}", "set x.y: no namespace"},
    {"{% for a, b in [1] %}{% endfor %}", "2 names for an integer"},
    {"{% macro f() %}{% endmacro %}{{ f(1) }}", "an argument that it does not have"},
    {"{{ raise_exception('No \x1b[2J way') }}", "messages: the chat template says: No ?[2J way"},
    /* limits */
    {"{% set r = range(9999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}", "steps"},
    {"{{ range(99999999) }}", "range"},
    {"{% set ns = namespace(x='xxxxxxxxxx') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
     "bytes"},
    {"{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
     "100 deep"},
    {"{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == ns.x "
     "}}{{ ns.x }}",
     "steps"},
    {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "100 deep"},
    {"{{ 'a'.replace('a', 'bbbbbbbbbb' * 99999) * 9999 }}", "bytes"},
};

static void what_is_refused(void) {
    napier_text_buffer text = {0};
    for (size_t i = 0; i < sizeof cannot / sizeof cannot[0]; i++) {
        const napier_status status = render(cannot[i][0], &text);
        expect(status == NAPIER_UNSUPPORTED || status == NAPIER_INVALID_ARGUMENT, "%s: status %d", cannot[i][0],
               (int)status);
        expect(strstr(napier_last_error(context), cannot[i][1]) != NULL, "%s: %s", cannot[i][0],
               napier_last_error(context));
        expect(text.size == 0, "%s: %zu bytes are left", cannot[i][0], text.size);
    }
    napier_text_buffer_free(context, &text);
}

static void deep_nesting(void) {
    char source[4096] = "{{ ";
    napier_text_buffer text = {0};
    for (int i = 0; i < 1000; i++) {
        strcat(source, "(");
    }
    strcat(source, "1");
    expect(render(source, &text) == NAPIER_UNSUPPORTED, "%s", napier_last_error(context));
    strcpy(source, "{{ ");
    for (int i = 0; i < 900; i++) {
        strcat(source, "not ");
    }
    strcat(source, "1 }}");
    expect(render(source, &text) == NAPIER_UNSUPPORTED, "%s", napier_last_error(context));
    napier_text_buffer_free(context, &text);
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static void options_count(void) {
    static const char source[] =
        "{{ date_string }} {{ strftime_now('%Y') }} {{ enable_thinking }}{{ add_generation_prompt }}";
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    napier_chat_template *dated = NULL, *plain = NULL;
    napier_text_buffer text = {0};
    succeeded(context, napier_chat_template_create(context, source, sizeof source - 1, NULL, NULL, &dated),
              "a template");
    succeeded(context, napier_chat_template_create(context, "{{ eos_token }}", 15, NULL, NULL, &plain), "a template");
    expect(napier_chat_template_mentions(dated, "enable_thinking") && !napier_chat_template_mentions(plain, "tools"),
           "mentions");
    options.chat_template = dated;
    options.date = "1 May 2026";
    options.disable_thinking = 1;
    options.add_generation_prompt = 0;
    succeeded(context, napier_chat_text(context, talk, 1, &options, &text), "a template");
    static const char wanted[] = "1 May 2026 1 May 2026 FalseFalse";
    expect(text.size == sizeof wanted - 1 && memcmp(text.bytes, wanted, text.size) == 0, "%.*s", (int)text.size,
           text.bytes);
    text.size = 0;
    options.variables = "{\"messages\": [-123456789012345678901, 1.5, [\"\\u00e9\"]], \"enable_thinking\": 7}";
    options.variables_size = strlen(options.variables);
    napier_chat_template *seen = NULL, *clock = NULL;
    static const char given[] = "{{ messages }}{{ messages | tojson }}{{ enable_thinking }}{{ date_string }}";
    succeeded(context, napier_chat_template_create(context, given, sizeof given - 1, NULL, NULL, &seen), "a template");
    options.chat_template = seen;
    succeeded(context, napier_chat_text(context, NULL, 0, &options, &text), "variables");
    static const char values[] =
        "[-123456789012345678901, 1.5, ['\xc3\xa9']][-123456789012345678901, 1.5, [\"\xc3\xa9\"]]71 May 2026";
    expect(text.size == sizeof values - 1 && memcmp(text.bytes, values, text.size) == 0, "%.*s", (int)text.size,
           text.bytes);
    options.variables_size--;
    refused(context, napier_chat_text(context, NULL, 0, &options, &text), NAPIER_UNSUPPORTED, "is wanted before", NULL);
    options.variables = "[1]";
    options.variables_size = 3;
    refused(context, napier_chat_text(context, NULL, 0, &options, &text), NAPIER_UNSUPPORTED, "no object of JSON",
            NULL);
    options.variables = NULL;
    invalid(context, napier_chat_text(context, NULL, 0, &options, &text), "variables NULL");
    options.variables_size = 0;
    static const char timed[] = "{{ strftime_now('%d %b %Y') }}";
    succeeded(context, napier_chat_template_create(context, timed, sizeof timed - 1, NULL, NULL, &clock), "a template");
    text.size = 0;
    options.chat_template = clock;
    options.date = NULL;
    options.now = 86400 * 365;
    options.disable_thinking = 0;
    succeeded(context, napier_chat_text(context, NULL, 0, &options, &text), "a clock");
    expect(text.size == 11 && memcmp(text.bytes, "01 Jan 1971", 11) == 0, "%.*s", (int)text.size, text.bytes);
    options.disable_thinking = 1;
    options.date = "1 May 2026";
    napier_chat_template_destroy(context, seen);
    napier_chat_template_destroy(context, clock);
    options.chat_template = plain;
    invalid(context, napier_chat_text(context, talk, 1, &options, &text), "no enable_thinking");
    options.disable_thinking = 0;
    invalid(context, napier_chat_text(context, talk, 1, &options, &text), "writes no date");
    options.date = NULL;
    options.tools = "{}";
    options.tools_size = 2;
    invalid(context, napier_chat_text(context, talk, 1, &options, &text), "tools have no place");
    napier_text_buffer_free(context, &text);
    napier_chat_template_destroy(context, dated);
    napier_chat_template_destroy(context, plain);
    napier_chat_template_destroy(context, NULL);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static napier_status call(napier_context *c, void *unused) {
    static const char source[] = "{% for m in messages %}{{ m.content | trim | upper }}{{ m | tojson }}{% endfor %}";
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    napier_chat_template *made = NULL;
    napier_text_buffer text = {0};
    (void)unused;
    napier_status status = napier_chat_template_create(c, source, sizeof source - 1, "<s>", "</s>", &made);
    options.chat_template = made;
    status = status ? status : napier_chat_text(c, talk, 3, &options, &text);
    napier_text_buffer_free(c, &text);
    napier_chat_template_destroy(c, made);
    return status ? status : napier_chat_template_load(c, "/nowhere", &made);
}

static void memory(void) { check_allocations("a template", call, NULL); }

int main(void) {
    context = context_of(NAPIER_ISA_AUTO, 1);
    const int failed = RUN_TESTS("chat template", TEST(what_is_written), TEST(what_is_refused), TEST(deep_nesting),
                                 TEST(options_count), TEST(memory));
    napier_context_destroy(context);
    return failed;
}
