/* cli/program/completion.c - `napier completion SHELL`: prints what bash, zsh or fish need to complete commands, options,
 * words and names of files. All of it comes from the tables of options. */
#include "command.h"
#include "message.h"

#include <stdio.h>
#include <string.h>

static bool is_file(const option *o) {
    return o->kind == OPTION_READ || o->kind == OPTION_WRITE || o->kind == OPTION_WRITES;
}

/* Prints the values that a list allows, separated. */
static void print_words(const option_word *words, const char *separator) {
    for (const option_word *w = words; w->name != NULL; w++) {
        printf("%s%s", w == words ? "" : separator, w->name);
    }
}

/* Prints the first part of a help text, up to `;`, `:` or a bracket, for a text between single quotes. */
static void print_short(const char *help) {
    for (size_t i = 0, size = strcspn(help, ";:([{"); i < size && (i + 1 < size || help[i] != ' '); i++) {
        if (help[i] != '\'') {
            putchar(help[i]);
        }
    }
}

/* ---- bash ---------------------------------------------------------------------------------------------------------- */

static void print_bash_command(const command *c) {
    printf("    %s)\n        case $2 in\n", c->name);
    for (const option_group *g = c->groups; g->options != NULL; g++) {
        for (const option *o = g->options; o->name != NULL; o++) {
            if (o->words != NULL) {
                printf("        --%s) values='", o->name);
                print_words(o->words, " ");
                puts("' ;;");
            } else if (o->kind != OPTION_FLAG && !is_file(o)) {
                printf("        --%s) values=- ;;\n", o->name);
            }
        }
    }
    printf("        esac\n        options='");
    for (const option_group *g = c->groups; g->options != NULL; g++) {
        for (const option *o = g->options; o->name != NULL; o++) {
            printf("--%s ", o->name);
        }
    }
    puts("' ;;");
}

static void print_bash(const command *const *commands, int count) {
    puts("# bash completion for napier\n"
         "_napier_options() { # the command, and the option before the word: sets options, and values of the option\n"
         "    case $1 in");
    for (int i = 0; i < count; i++) {
        print_bash_command(commands[i]);
    }
    printf("    esac\n}\n"
           "_napier() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} options= values=\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ] || { [ \"$COMP_CWORD\" -eq 2 ] && [ \"$before\" = help ]; }; then\n"
           "        COMPREPLY=($(compgen -W 'help completion --version");
    for (int i = 0; i < count; i++) {
        printf(" %s", commands[i]->name);
    }
    puts("' -- \"$word\"))\n"
         "        return\n"
         "    fi\n"
         "    _napier_options \"${COMP_WORDS[1]}\" \"$before\"\n"
         "    if [ -n \"$values\" ]; then # of the option before the word; -: any\n"
         "        [ \"$values\" = - ] || COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
         "    elif [[ $word = -* ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
         "    fi\n"
         "}\n"
         "complete -o default -F _napier napier");
}

/* ---- zsh ----------------------------------------------------------------------------------------------------------- */

static void print_zsh_option(const option *o) {
    const char *const many = o->kind == OPTION_WRITES ? "*" : "";
    printf(" \\\n            '%s--%s%s[", many, o->name, o->kind == OPTION_FLAG ? "" : "=");
    print_short(o->help);
    putchar(']');
    if (o->kind != OPTION_FLAG) {
        printf(":%s:", o->argument);
        if (o->words != NULL) {
            putchar('(');
            print_words(o->words, " ");
            putchar(')');
        } else if (is_file(o)) {
            fputs("_files", stdout);
        }
    }
    putchar('\'');
}

static void print_zsh(const command *const *commands, int count) {
    puts("#compdef napier\n"
         "if (( CURRENT == 2 )) || { (( CURRENT == 3 )) && [[ $words[2] = help ]] }; then\n"
         "    local -a commands=(");
    for (int i = 0; i < count; i++) {
        printf("        '%s:", commands[i]->name);
        print_short(commands[i]->summary);
        puts("'");
    }
    puts("        'help:options of a command, with an example' completion)\n"
         "    _describe command commands\n"
         "    return\n"
         "fi\n"
         "shift words\n"
         "(( CURRENT-- ))\n"
         "case $words[1] in");
    for (int i = 0; i < count; i++) {
        printf("    %s) _arguments '*:file:_files'", commands[i]->name);
        for (const option_group *g = commands[i]->groups; g->options != NULL; g++) {
            for (const option *o = g->options; o->name != NULL; o++) {
                print_zsh_option(o);
            }
        }
        puts(" ;;");
    }
    puts("esac");
}

/* ---- fish ---------------------------------------------------------------------------------------------------------- */

static void print_fish_option(const command *c, const option *o) {
    printf("complete -c napier -n '__fish_seen_subcommand_from %s' -l %s", c->name, o->name);
    if (o->letter != 0) {
        printf(" -s %c", o->letter);
    }
    if (o->words != NULL) {
        fputs(" -xa '", stdout);
        print_words(o->words, " ");
        putchar('\'');
    } else if (o->kind != OPTION_FLAG) {
        fputs(is_file(o) ? " -rF" : " -x", stdout);
    }
    fputs(" -d '", stdout);
    print_short(o->help);
    puts("'");
}

static void print_fish(const command *const *commands, int count) {
    puts("complete -c napier -n __fish_use_subcommand -f -a help -d 'options of a command, with an example'\n"
         "complete -c napier -n __fish_use_subcommand -f -a completion");
    for (int i = 0; i < count; i++) {
        printf("complete -c napier -n __fish_use_subcommand -f -a %s -d '", commands[i]->name);
        print_short(commands[i]->summary);
        puts("'");
        for (const option_group *g = commands[i]->groups; g->options != NULL; g++) {
            for (const option *o = g->options; o->name != NULL; o++) {
                print_fish_option(commands[i], o);
            }
        }
    }
}

/* ---- The command --------------------------------------------------------------------------------------------------- */

int completion_print(const char *shell, const command *const *commands, int count) {
    static const struct {
        const char *name;
        void (*print)(const command *const *commands, int count);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (shell != NULL && strcmp(shells[i].name, shell) == 0) {
            shells[i].print(commands, count);
            return finish_standard_output();
        }
    }
    return shell == NULL ? misuse("completion: a shell is missing: bash, zsh or fish")
                         : misuse("completion: '%s' is not bash, zsh or fish", shell);
}
