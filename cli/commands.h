/* cli/commands.h - the subcommands. Each takes the words after its name and returns the exit status. */
#ifndef NAPIER_CLI_COMMANDS_H
#define NAPIER_CLI_COMMANDS_H

int softmax_command(int count, char **words);
int log_softmax_command(int count, char **words);
int logsumexp_command(int count, char **words);
int sparsemax_command(int count, char **words);
int umap_command(int count, char **words);
int grpo_command(int count, char **words);
int kl_command(int count, char **words);
int rubric_command(int count, char **words);
int tokenize_command(int count, char **words);
int logprobs_command(int count, char **words);
int judge_command(int count, char **words);
int info_command(int count, char **words);
int bench_command(int count, char **words);

/* Print their --help to standard output. */
void softmax_help(void);
void log_softmax_help(void);
void logsumexp_help(void);
void sparsemax_help(void);
void umap_help(void);
void grpo_help(void);
void kl_help(void);
void rubric_help(void);
void tokenize_help(void);
void logprobs_help(void);
void judge_help(void);
void info_help(void);
void bench_help(void);

/* Ends a command that prints to standard output. Returns STATUS_FAILED if not all of it could be written. */
int finish_standard_output(void);

#endif
