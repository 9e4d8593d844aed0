# KL of responses and of rows of logits, in every format.
printf '{}' | napier kl - 2>&1 | grep -q 'no cJSON' && skip "built without cJSON"
cat >batch.jsonl <<'END'
{"logprobs": [-0.5, -1.25, -2.0], "ref_logprobs": [-0.75, -1.25, -1.5], "mask": [1, 1, 0]}

{"logprobs": [], "ref_logprobs": [], "mask": []}
{"ref_logprobs": [-1, -2, -3, -4], "logprobs": [-1, -2, -3, -4], "mask": [1, 1, 1, 1]}
END
told napier kl batch.jsonl
for estimator in k1 k2 k3; do
    told napier kl batch.jsonl --kl-estimator $estimator --reduction mean -f csv
done
told napier kl batch.jsonl --clamp-ratio 0.125 -o kl.tsv
cat kl.tsv
told napier kl batch.jsonl --kl-estimator k2 --clamp-kl 0.01 -o kl.jsonl
cat kl.jsonl
told napier kl batch.jsonl -o kl.npy
show kl.npy
# Exact KL, from logits.
printf '1,2,3\n0,0,0\n' >p.csv
printf '1,2,3\n0,0,10\n' >q.csv
told napier kl --logits p.csv --ref-logits q.csv
told napier kl --logits p.csv --ref-logits q.csv --temperature 10 -f tsv
run_line 'napier kl --logits - --ref-logits q.csv -f csv <p.csv'
array '<f4' '(3,)' "$f4_123" >three.npy
told napier kl --logits three.npy --ref-logits three.npy
array '<f8' '(3,)' "$f8_123" >wide.npy
told napier kl --logits wide.npy --ref-logits three.npy
told napier kl --logits p.csv --ref-logits three.npy
# The outputs of napier logprobs of two models.
printf '%s\n' '{"logprobs": [-0.5, -1.25]}' '{"logprobs": [-2]}' >policy.jsonl
printf '%s\n' '{"logprobs": [-1, -1.5]}' '{"logprobs": [-1.5]}' >ref.jsonl
printf '%s\n' '{"logprobs": [-1, -1.5]}' '{"logprobs": [-1.5, -1]}' >longer.jsonl
run napier kl policy.jsonl --ref ref.jsonl 2>&1
run napier kl policy.jsonl --ref longer.jsonl 2>&1
run napier kl longer.jsonl --ref policy.jsonl --offsets x.npy 2>&1
head -n 1 ref.jsonl >shorter.jsonl
run napier kl policy.jsonl --ref shorter.jsonl 2>&1
