# Every command has help with an example.
run napier --version | sed 's|[0-9][0-9.]*|V|'
run napier version | sed 's|[0-9][0-9.]*|V|'
run napier -V | sed 's|[0-9][0-9.]*|V|'
run napier --help
run napier -h | cmp - "$(napier --help >h; echo h)"
run napier help | cmp - h
for command in softmax log-softmax logsumexp sparsemax umap grpo kl rubric tokenize logprobs judge generate check-model info bench; do
    run napier help $command
    napier help $command >h
    run napier $command --help | cmp - h
    run napier $command -h | cmp - h
    run napier $command nothing.npy --help --nonsense 2>/dev/null | head -n 1
done
