# Invalid options of grpo, kl and rubric: exit status 2. An option that needs missing data: exit status 1.
printf '1,2\n' >a.csv
printf '1\n' >b.csv
echo '{"logprobs": [1, 2], "ref_logprobs": [1, 2], "advantage": 1, "token_ids": [0, 1]}' >r.jsonl
for command in grpo kl rubric; do
    told napier $command
    told napier $command --frobnicate
    told napier $command r.jsonl r.jsonl
    told napier $command r.jsonl --logprobs a.csv
    told napier $command r.jsonl --offsets a.csv
    told napier $command --logprobs a.csv
    told napier $command r.jsonl --format xlsx
    told napier $command r.jsonl -j 0
done
arrays="--logprobs a.csv --advantages b.csv"
told napier grpo $arrays --loss-type ppo
told napier grpo $arrays --loss_type dapo
told napier grpo $arrays --importance-sampling-level response
told napier grpo $arrays --importance-sampling-mode truncate
told napier grpo $arrays --kl-estimator k4
for option in epsilon epsilon-high delta beta sapo-temperature-pos num-items-in-batch importance-sampling-cap \
    top-entropy-quantile; do
    told napier grpo $arrays --$option -1
done
told napier grpo $arrays --top-entropy-quantile 1.5
told napier grpo $arrays --entropy-coefficient inf
told napier grpo $arrays --entropy-threshold inf
told napier grpo $arrays --entropy-threshold 1 --top-entropy-quantile 0.5
told napier grpo $arrays --importance-sampling-cap -inf
told napier grpo $arrays --importance-sampling-cap nan
told napier grpo $arrays --max-completion-length 0
told napier grpo $arrays --importance-sampling-floor 4
told napier grpo $arrays --format csv
told napier grpo $arrays --losses -
told napier grpo $arrays -o x --losses - --gradients -
told napier grpo --logprobs - --advantages -
told napier grpo $arrays --beta 0.1
told napier grpo $arrays --importance-sampling-mode token_mask
told napier grpo $arrays --top-entropy-quantile 0.5
told napier grpo $arrays --entropy-threshold 1
told napier grpo $arrays --entropy-coefficient 1
told napier grpo $arrays --entropy-gradients g.npy
told napier grpo $arrays --losses nowhere/l.npy
told napier grpo $arrays -o nowhere/r.json
told napier kl --logprobs a.csv --ref a.csv --reduction max
told napier kl --logprobs a.csv --ref a.csv --kl-estimator 1
told napier kl --logprobs a.csv --ref a.csv --clamp-kl 0
told napier kl --logprobs a.csv --ref a.csv --temperature 2
told napier kl --logits a.csv
told napier kl --logits a.csv --ref-logits a.csv --kl-estimator k1
told napier kl --logits a.csv --ref-logits a.csv --temperature 0
told napier kl --logits - --ref-logits -
told napier kl --logits missing.csv --ref-logits a.csv
told napier rubric --logprobs a.csv --token-ids a.csv
told napier rubric - --rubric -
told napier rubric --logprobs a.csv --token-ids a.csv --rubric a.csv --rewards -
told napier rubric --logprobs a.csv --token-ids a.csv --rubric missing.csv
told napier rubric --logprobs a.csv --token-ids a.csv --rubric a.csv
ls
