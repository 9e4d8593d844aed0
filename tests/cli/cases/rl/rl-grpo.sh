# Losses of responses in JSON Lines: every type, both levels, penalties and corrections; the report, losses and gradients.
printf '{}' | napier kl - 2>&1 | grep -q 'no cJSON' && skip "built without cJSON"
cat >batch.jsonl <<'END'
{"logprobs": [-0.5, -1.25, -2.0], "old_logprobs": [-0.6, -1.0, -2.0], "ref_logprobs": [-0.75, -1.25, -1.5], "sampler_logprobs": [-0.5, -1.0, -2.25], "entropies": [0.5, 2.0, 1.0], "advantage": 1.0, "mask": [1, 1, 1]}
{"logprobs": [], "old_logprobs": [], "ref_logprobs": [], "sampler_logprobs": [], "entropies": [], "advantage": 3.0, "mask": []}
{"logprobs": [-0.1, -3.0], "old_logprobs": [-0.8, -3.0], "ref_logprobs": [-0.1, -3.5], "sampler_logprobs": [-0.75, -3.0], "entropies": [0.25, 1.5], "advantage": -0.5, "mask": [true, true], "prompt": "ignored"}
{"logprobs": [-1.5, -0.25, -9.0], "old_logprobs": [-1.0, -0.25, -1.0], "ref_logprobs": [-1.5, -0.25, 0.0], "sampler_logprobs": [-1.0, -0.25, 0.0], "entropies": [1.0, 1.0, 9.0], "advantage": 0.25, "mask": [1, 1, false]}
END
told napier grpo batch.jsonl --losses losses.csv --gradients grad.csv
cat losses.csv
cat grad.csv
for type in grpo bnpo dr_grpo dapo gspo cispo sapo vespo luspo token_mean; do
    for level in token sequence; do
        echo "$type $level"
        run napier grpo batch.jsonl --loss-type $type --importance-sampling-level $level --beta 0.1 \
            --gradients grad.npy | grep '"loss"'
        tail -c +129 grad.npy | od -An -v -tx4
    done
done
loss() { printf '%s: ' "$*" && run napier grpo batch.jsonl "$@" | grep '"loss"'; }
loss --epsilon 0.1 --epsilon-high 0.28
loss --delta 1.01
loss --loss-type cispo --epsilon-high 5
loss --loss-type sapo --sapo-temperature-pos 2 --sapo-temperature-neg=3
loss --loss-type vespo --vespo-k-pos 1 --vespo-lambda-pos 1 --vespo-k-neg 2 --vespo-lambda-neg 2
loss --loss-type dr_grpo --max-completion-length 100
loss --loss-type dapo --num-items-in-batch 70
loss --beta 0.04 --kl-estimator k1
loss --beta 0.04 --kl-estimator k2 --use-bias-correction-kl
for mode in none token_truncate token_mask sequence_truncate sequence_mask; do
    loss --importance-sampling-mode $mode --importance-sampling-cap 1.05
done
loss --importance-sampling-mode token_mask --importance-sampling-floor 0.95
loss --top-entropy-quantile 0.5
loss --entropy-coefficient 0.01
# The threshold itself instead of the quantile 1 - 0.5 of the entropies that count, here 1: the same loss.
loss --entropy-threshold 1
loss --importance-sampling-mode token_truncate --importance-sampling-cap inf
loss --importance-sampling-mode token_mask --importance-sampling-cap 1000
# The second response is empty: not counted in means, or counted as in a padded batch, where all its tokens are masked.
sed 's/\[\]/[0]/g' batch.jsonl >masked.jsonl
for type in grpo dr_grpo luspo token_mean dapo; do
    loss --loss-type $type --beta 0.1
    loss --loss-type $type --beta 0.1 --count-empty-responses
    run napier grpo masked.jsonl --loss-type $type --beta 0.1 | grep '"loss"'
done
loss --off-policy-mask-threshold 0.1
# The whole report to a file, and the same bits for any instruction set and threads.
run napier grpo batch.jsonl --beta 0.1 --isa scalar -j 1 -o one.json
run napier grpo batch.jsonl --beta 0.1 -j 3 -o three.json
cmp one.json three.json
cat one.json
# On-policy: without old log-probs every ratio is 1. An advantage for each token; NaN and infinities as in Python.
printf '{"logprobs": [-0.5, -1], "advantages": [1, -2]}\n' | told napier grpo - --gradients grad.csv
cat grad.csv
printf '{"logprobs": [-0.5, NaN], "advantage": 1}\n' | told napier grpo -
printf '{"logprobs": [-0.5, -Infinity, -1], "old_logprobs": [-0.5, "-Infinity", -1], "advantage": 1}\n' | told napier grpo -
