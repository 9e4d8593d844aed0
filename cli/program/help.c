/* cli/program/help.c - prints the table of a command's options as --help, and as a part of the man page. */
#include "command.h"

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

/* Prints text for Markdown, with options as code. */
static void print_escaped(const char *text) {
    for (const char *at = text; *at != '\0'; at++) {
        const size_t name = strncmp(at, "--", 2) == 0 ? strspn(at, "-abcdefghijklmnopqrstuvwxyz") : 0;
        if (name > 0) {
            printf("`%.*s`", (int)name, at);
            at += name - 1;
            continue;
        }
        if (strchr("_*<`\\", *at) != NULL) {
            putchar('\\');
        }
        putchar(*at);
    }
}

static void print_entry(const option *o) {
    char text[TEXT_SIZE];
    const char *const argument = o->argument != NULL ? o->argument : "";
    if (o->letter != 0) {
        printf("`-%c`, ", o->letter);
    }
    printf("`--%s`%s%s%s\n: ", o->name, *argument != '\0' ? " *" : "", argument, *argument != '\0' ? "*" : "");
    print_escaped(sentence(text, o));
    fputs("\n\n", stdout);
}

static void print_entries(const option_group *g) {
    if (g->heading != NULL) {
        print_escaped(g->heading);
        puts("\n");
    }
    for (const option *o = g->options; o->name != NULL; o++) {
        print_entry(o);
    }
}

void commands_manual(const command *const *commands, int count) {
    for (int i = 0; i < count; i++) {
        const option_group *const groups = commands[i]->groups;
        const bool is_first = i == 0 || groups != commands[i - 1]->groups;
        const bool is_last =
            i + 1 == count || groups != commands[i + 1]->groups; /* of commands with the same options */
        if (groups->options == machine_options) {
            continue;
        }
        printf("%s%s%s", is_first ? "## " : ", ", commands[i]->name, is_last ? "\n\n" : "");
        for (const option_group *g = groups; is_last && g->options != machine_options; g++) {
            print_entries(g);
        }
    }
    const option_group all = {NULL, machine_options};
    puts("## All commands\n");
    print_entries(&all);
}
