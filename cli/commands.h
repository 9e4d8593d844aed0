/* cli/commands.h - the subcommands. */
#ifndef NAPIER_CLI_COMMANDS_H
#define NAPIER_CLI_COMMANDS_H

#include "program/command.h"

extern const command softmax_command, log_softmax_command, logsumexp_command, sparsemax_command, umap_command;
extern const command grpo_command, kl_command, rubric_command, tokenize_command, logprobs_command, judge_command,
    generate_command, chat_command, check_model_command, info_command, bench_command;

#endif
