/* cli/program/help.c - prints the table of a command's options as --help, and as a part of the man page. */
#include "command.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_COLUMN = 29, TEXT_SIZE = 1024 };

/* The sentence of an option, with its list of words. Returns `out`. */
static const char *sentence(char out[TEXT_SIZE], const option *o) {
    char words[OPTION_WORDS_SIZE] = "";
    const char *const mark = strstr(o->help, "{}");
    if (mark == NULL || o->words == NULL) {
        return o->help;
    }
    snprintf(out, TEXT_SIZE, "%.*s%s%s", (int)(mark - o->help), o->help, option_words(words, o->words), mark + 2);
    return out;
}

void print_wrapped(const char *text, int column, int indent) {
    while (*text != '\0') {
        const int size = (int)strcspn(text, " ");
        if (column > indent && column + 1 + size > HELP_WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        column += printf("%s%.*s", column > indent ? " " : "", size, text);
        text += size + (text[size] == ' ');
    }
    putchar('\n');
}

static void print_option(const option *o) {
    char text[TEXT_SIZE];
    const char *const argument = o->argument != NULL ? o->argument : "";
    const char short_form[] = {o->letter != 0 ? '-' : ' ', o->letter != 0 ? o->letter : ' ', o->letter != 0 ? ',' : ' ',
                               '\0'};
    int column = printf("  %s --%s%s%s", short_form, o->name, *argument != '\0' ? " " : "", argument);
    if (column > TEXT_COLUMN - 2) {
        putchar('\n');
        column = 0;
    }
    printf("%*s", TEXT_COLUMN - column, "");
    print_wrapped(sentence(text, o), TEXT_COLUMN, TEXT_COLUMN);
}

/* Prints each line of `lines` after `first`, and those after the first one after `next`. */
static void print_lines(const char *lines, const char *first, const char *next) {
    for (const char *before = first; *lines != '\0'; before = next) {
        const int size = (int)strcspn(lines, "\n");
        printf("%s%.*s\n", before, size, lines);
        lines += size + (lines[size] == '\n');
    }
}

void command_help(const command *c) {
    char first[64], next[64];
    snprintf(first, sizeof first, "usage: napier %s ", c->name);
    snprintf(next, sizeof next, "       napier %s ", c->name);
    print_lines(c->usage, first, next);
    printf("\n%s\n", c->about);
    for (const option_group *g = c->groups; g->options != NULL; g++) {
        printf("\n%s%s", g->heading != NULL ? g->heading : "", g->heading != NULL ? "\n" : "");
        for (const option *o = g->options; o->name != NULL; o++) {
            print_option(o);
        }
    }
    if (c->more_help != NULL) {
        c->more_help();
    }
    puts("");
    print_lines(c->example, "example: ", "example: ");
}

/* ---- The man page ------------------------------------------------------------------------------------------------ */

/* Prints text for Markdown. A sentence begins with a capital. */
static void print_escaped(const char *text, bool is_sentence) {
    for (const char *at = text; *at != '\0'; at++) {
        if (strchr("_*<`\\", *at) != NULL) {
            putchar('\\');
        }
        putchar(at == text && is_sentence ? toupper((unsigned char)*at) : *at);
    }
}

static void print_entry(const option *o) {
    char text[TEXT_SIZE];
    if (o->letter != 0) {
        printf("`-%c`, ", o->letter);
    }
    printf("`--%s`", o->name);
    if (o->argument != NULL) {
        fputs(" *", stdout);
        print_escaped(o->argument, false);
        fputs("*", stdout);
    }
    fputs("\n: ", stdout);
    print_escaped(sentence(text, o), true);
    fputs("\n\n", stdout);
}

static void print_entries(const option_group *g) {
    if (g->heading != NULL) {
        print_escaped(g->heading, false);
        puts("\n");
    }
    for (const option *o = g->options; o->name != NULL; o++) {
        print_entry(o);
    }
}

void commands_manual(const command *const *commands, int count) {
    for (int i = 0; i < count; i++) {
        printf("%s%s%s", i == 0 || commands[i]->groups != commands[i - 1]->groups ? "## " : ", ", commands[i]->name,
               i + 1 < count && commands[i]->groups == commands[i + 1]->groups ? "" : "\n\n");
        if (i + 1 < count && commands[i]->groups == commands[i + 1]->groups) {
            continue; /* both are described once */
        }
        for (const option_group *g = commands[i]->groups; g->options != NULL; g++) {
            if (g->options != machine_options) {
                print_entries(g);
            }
        }
    }
    puts("## All commands\n");
    const option_group all = {NULL, machine_options};
    print_entries(&all);
}
