# Samples of a tiny model: texts, ids and conversations; the same bytes in any way, and after an interruption; scored by
# napier logprobs, they have the same log-probabilities.
printf '{}' | napier generate - --model . 2>&1 | grep -q 'has no models' && skip "built without models"
tiny_model model
cat >in.jsonl <<'EOF'
{"prompt": "hello"}
{"prompt": [104, 101], "responses": ["which are not read"]}

{"prompt": [{"role": "user", "content": "Hi"}]}
EOF
told napier generate in.jsonl --model model --samples 2 --max-tokens 6 --seed 3
told napier generate in.jsonl -m model --greedy --max-tokens 4 --compute bf16
told napier generate in.jsonl -m model --max-tokens 5 --top-k 20 --top-p 0.9 --min-p 0.01 --repetition-penalty 1.2 -t 0.7
napier generate in.jsonl -m model -n 130 --max-tokens 9 --stop-id 101 -o all.jsonl
wc -l <all.jsonl
for how in '--isa scalar' '--threads 1' '--threads 7' '--memory 6M'; do
    napier generate in.jsonl -m model -n 130 --max-tokens 9 --stop-id 101 $how | cmp - all.jsonl && echo "same: $how"
done

# Interrupted after some lines, in the middle of one, and with all of them
for lines in 0 1 131 200 390; do
    head -n $lines all.jsonl >some.jsonl
    [ $lines = 390 ] || printf '{"line": 1, "sam' >>some.jsonl
    run napier generate in.jsonl -m model -n 130 --max-tokens 9 --stop-id 101 -o some.jsonl --resume
    cmp some.jsonl all.jsonl && echo "the same after $lines lines"
done
napier generate in.jsonl -m model -n 2 --max-tokens 3 -o new.jsonl --resume && wc -l <new.jsonl

# Sampled and scored: the same numbers
napier generate in.jsonl -m model --max-tokens 8 | head -n 1 >one.jsonl
ids=$(sed 's/.*"token_ids": \(\[[^]]*\]\).*/\1/' one.jsonl)
printf '{"prompt": "hello", "response": %s}\n' "$ids" | napier logprobs - -m model >scored.jsonl
for file in one scored; do
    sed 's/.*"logprobs": \(\[[^]]*\]\).*/\1/' $file.jsonl >$file.txt
done
sed 's/.*"plain_logprobs": \(\[[^]]*\]\).*/\1/' one.jsonl | cmp - scored.txt && echo "sampled is scored"

# Errors
told napier generate all.jsonl -m model
told napier generate in.jsonl -m model -n 2 --max-tokens 3 -o all.jsonl --resume
printf 'a file of somebody else' >other
told napier generate in.jsonl -m model -n 2 --max-tokens 3 -o other --resume
cat other && echo
told napier generate in.jsonl -m model --resume
told napier generate in.jsonl
told napier generate in.jsonl -m model --memory 100K
told napier generate in.jsonl -m model --max-tokens 0
told napier generate in.jsonl -m model --top-p 0
printf '{"prompt": ""}\n' | told napier generate - -m model
