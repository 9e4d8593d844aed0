# Scores of responses by criteria, and rewards.
printf '{}' | napier kl - 2>&1 | grep -q 'no cJSON' && skip "built without cJSON"
cat >answers.jsonl <<'END'
{"logprobs": [-0.5, -1.25, -2.0], "token_ids": [0, 1, 3]}
{"logprobs": [], "token_ids": []}
{"logprobs": [-1.5], "token_ids": [2]}
END
printf '1,0,1,0\n0,2,0,-1\n' >rubric.csv
told napier rubric answers.jsonl --rubric rubric.csv
told napier rubric answers.jsonl --rubric rubric.csv --weights 1,-0.5 --rewards rewards.csv -o scores.csv
cat scores.csv rewards.csv
printf '2\n1\n' >weights.csv
told napier rubric answers.jsonl --rubric rubric.csv --weights weights.csv -f tsv
told napier rubric answers.jsonl --rubric rubric.csv --rewards rewards.npy -o scores.npy
show scores.npy
show rewards.npy
# One criterion as a vector.
array '<f4' '(3,)' "$f4_123" >one.npy
told napier rubric answers.jsonl --rubric one.npy
head -n 1 answers.jsonl | sed 's/3]/2]/' | told napier rubric - --rubric one.npy --weights 10
told napier rubric answers.jsonl --rubric rubric.csv --weights 1,2,3
told napier rubric answers.jsonl --rubric rubric.csv --weights 1,x
told napier rubric answers.jsonl --rubric rubric.csv --weights "1,-0.5$(printf '%064d' 0)"
printf '{"logprobs": [1], "token_ids": [-1]}\n' | told napier rubric - --rubric rubric.csv
printf '{"logprobs": [1], "token_ids": [0.5]}\n' | told napier rubric - --rubric rubric.csv
printf '{"logprobs": [1], "token_ids": [1e300]}\n' | told napier rubric - --rubric rubric.csv
{ head -n 1 answers.jsonl && echo '{"logprobs": [1, 2], "token_ids": [0, 4]}'; } | told napier rubric - --rubric rubric.csv
printf '{"logprobs": [1], "token_ids": [0], "mask": [0], "advantage": 1}\n' | told napier rubric - --rubric rubric.csv
