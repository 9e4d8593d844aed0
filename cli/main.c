/* cli/main.c - the `napier` program: finds the subcommand.
 * The program uses only the library's public headers, core/base/output_file.h and core/base/platform.h. */
#define _POSIX_C_SOURCE 200809L

#include "commands.h"
#include "io/output.h"
#include "program/command.h"
#include "program/message.h"
#include "program/options.h"
#include "program/system.h"

#include <napier/napier.h>

#include <stdint.h>
#include <string.h>

static const command *const commands[] = {
    &softmax_command, &log_softmax_command, &logsumexp_command, &sparsemax_command, &umap_command,  &grpo_command,
    &kl_command,      &rubric_command,      &tokenize_command,  &logprobs_command,  &judge_command, &generate_command,
    &chat_command,    &check_model_command, &info_command,      &bench_command,
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static const command *find_command(const char *name) {
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

static void print_help(void) {
    puts("napier - softmax, log-softmax, logsumexp, sparsemax and UMAP of arrays in .npy, CSV and TSV files; GRPO "
         "losses,\n"
         "KL and rubric scores of responses in JSON Lines and arrays; token ids of text, and log-probabilities of\n"
         "responses under language models.\n"
         "The same input gives the same bits on every machine.\n"
         "\n"
         "usage: napier COMMAND [OPTIONS] [FILE]\n");
    for (int i = 0; i < COMMANDS; i++) {
        printf("  %-12s %s\n", commands[i]->name, commands[i]->summary);
    }
    puts("\n"
         "  napier help COMMAND      options of a command, with an example\n"
         "  napier completion SHELL  what bash, zsh or fish needs to complete commands and options\n"
         "  napier --version         the version\n"
         "\n"
         "example: napier softmax logits.npy -o probs.npy\n"
         "\n"
         "environment: NAPIER_THREADS, NAPIER_ISA (as --threads, --isa); TMPDIR\n"
         "exit status: 0 done, 1 the data or the machine was at fault, 2 the command line was");
}

static int unknown_command(const char *name) {
    const command *nearest = NULL;
    size_t best = SIZE_MAX;
    for (int i = 0; i < COMMANDS; i++) {
        const size_t errors = typing_errors(commands[i]->name, name, strlen(name));
        if (errors < best) {
            best = errors;
            nearest = commands[i];
        }
    }
    return nearest != NULL ? misuse("unknown command '%s'; is '%s' meant?", name, nearest->name)
                           : misuse("unknown command '%s'", name);
}

static int help_command(int count, char **words) {
    if (count == 0) {
        print_help();
        return finish_standard_output();
    }
    if (strcmp(words[0], "--man") == 0) { /* for the build, see docs/napier.1.md */
        commands_manual(commands, COMMANDS);
        return finish_standard_output();
    }
    const command *const found = find_command(words[0]);
    if (found == NULL) {
        return unknown_command(words[0]);
    }
    if (count > 1) {
        return misuse("help: one command at a time");
    }
    command_help(found);
    return finish_standard_output();
}

int main(int argc, char **argv) {
    if (!system_start(&argc, &argv)) {
        return STATUS_FAILED;
    }
    if (argc < 2) {
        return misuse("a command is missing");
    }
    const char *const word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        return help_command(argc - 2, argv + 2);
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0 || strcmp(word, "version") == 0) {
        printf("napier %s\n", napier_version());
        return finish_standard_output();
    }
    if (strcmp(word, "completion") == 0) {
        return argc > 3 ? misuse("completion: one shell at a time") : completion_print(argv[2], commands, COMMANDS);
    }
    if (word[0] == '-') {
        return misuse("unknown option '%s'", word);
    }
    const command *const found = find_command(word);
    if (found == NULL) {
        return unknown_command(word);
    }
    output_handle_signals();
    return output_settle(command_run(found, argc - 2, argv + 2));
}
