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

# Cut after each byte of a small file, and killed while it writes: no line is lost, and none is there twice
printf '{"prompt": [104, 101]}\n{"prompt": [7]}\n' >ids.jsonl
napier generate ids.jsonl -m model --max-tokens 1 -o small.jsonl
size=$(wc -c <small.jsonl) same=0
for cut in $(seq 0 $size); do
    head -c $cut small.jsonl >cut.jsonl
    napier generate ids.jsonl -m model --max-tokens 1 -o cut.jsonl --resume && cmp cut.jsonl small.jsonl && same=$((same + 1))
done
[ $same -eq $((size + 1)) ] && echo "the same after a cut at any byte"
napier generate in.jsonl -m model -n 400 --max-tokens 30 --seed 4 -o long.jsonl
: >killed.jsonl
for times in 1 2 3 4 5 6; do
    before=$(wc -c <killed.jsonl)
    napier generate in.jsonl -m model -n 400 --max-tokens 30 --seed 4 -o killed.jsonl --resume &
    while kill -0 $! 2>/dev/null && [ "$(wc -c <killed.jsonl)" -le "$before" ]; do :; done
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
done
napier generate in.jsonl -m model -n 400 --max-tokens 30 --seed 4 -o killed.jsonl --resume
cmp killed.jsonl long.jsonl && echo "the same after six kills"

# Stop texts, across tokens too; the tokens stay the same
cut_at() { sed 's/.*"text": "\(.*\)", "finish.*/\1/'; }
napier generate in.jsonl -m model -n 40 --max-tokens 30 --seed 5 >free.jsonl
napier generate in.jsonl -m model -n 40 --max-tokens 30 --seed 5 --stop ll --stop Z --stop 'no such text' >stopped.jsonl
cut_at <free.jsonl | sed 's/ll.*//; s/Z.*//' >want.txt
cut_at <stopped.jsonl | cmp - want.txt && echo "stopped at a text"
grep -c '"finish": "stop", "stop": "\(ll\|Z\)"}$' stopped.jsonl
told napier generate in.jsonl -m model --max-tokens 8 --stop-id 101 --min-tokens 4 --temperature 0 --entropies
napier generate in.jsonl -m model --greedy >greedy.jsonl
napier generate in.jsonl -m model -t 0 | cmp - greedy.jsonl && echo "greedy is temperature 0"
printf '{"prompt": "hello", "response": %s}\n' "$(head -n 1 free.jsonl | sed 's/.*"token_ids": \(\[[^]]*\]\).*/\1/')" |
    napier logprobs - -m model | sed 's/.*\("entropies": \[[^]]*\]\).*/\1/' >entropies.txt
napier generate in.jsonl -m model -n 40 --max-tokens 30 --seed 5 --entropies | head -n 1 |
    sed 's/.*\("entropies": \[[^]]*\]\).*/\1/' | cmp - entropies.txt && echo "entropies are those of scoring"

# A prompt of the command line: its text, as it is generated
told napier generate --prompt hello -m model --max-tokens 20 --seed 3
told napier generate --prompt Hi --chat -m model --max-tokens 20 --seed 3
told napier generate -p hello -m model --max-tokens 6 --seed 3 -n 2 -o two.jsonl && cat two.jsonl

# Sampled and scored: the same numbers
napier generate in.jsonl -m model --max-tokens 8 | head -n 1 >one.jsonl
ids=$(sed 's/.*"token_ids": \(\[[^]]*\]\).*/\1/' one.jsonl)
printf '{"prompt": "hello", "response": %s}\n' "$ids" | napier logprobs - -m model >scored.jsonl
for file in one scored; do
    sed 's/.*"logprobs": \(\[[^]]*\]\).*/\1/' $file.jsonl >$file.txt
done
sed 's/.*"plain_logprobs": \(\[[^]]*\]\).*/\1/' one.jsonl | cmp - scored.txt && echo "sampled is scored"

# U+FFFE and U+FFFF are characters, in JSON too
mkdir odd && cp model/* odd
printf 's/<think>/\357\277\276/; s/caf[^!]*!/\357\277\277/' >odd.sed
sed -f odd.sed model/tokenizer.json >odd/tokenizer.json
napier generate in.jsonl -m odd -n 60 --max-tokens 40 --seed 5 | cut_at >odd.txt
for last in 276 277; do
    grep -q "$(printf "\\357\\277\\$last")" odd.txt && echo "there is ef bf $last"
done

# Errors
for setting in '"temperature": 0.5' '"n": 2' '"stop": ["a"]' '"max_new_tokens": 9' '"seed": 1' '"do_sample": true' '"logit_bias": {}'; do
    printf '{"prompt": "a", %s}\n' "$setting" | told napier generate - -m model --max-tokens 1
done
printf '{"prompt": "a", "id": 1, "answer": "b"}\n' | told napier generate - -m model --max-tokens 1
told napier generate all.jsonl -m model
told napier generate in.jsonl -m model -n 2 --max-tokens 3 -o all.jsonl --resume
sed '1s/}$/, "format": 2}/' all.jsonl >later.jsonl
told napier generate in.jsonl -m model -n 2 --max-tokens 3 -o later.jsonl --resume
printf 'a file of somebody else' >other
told napier generate in.jsonl -m model -n 2 --max-tokens 3 -o other --resume
cat other && echo
printf '{"line": 7, "sample": 0}\n{"line": 7, "sam' >other
told napier generate in.jsonl -m model -n 2 --max-tokens 3 -o other --resume
cat other && echo
told napier generate in.jsonl -m model --resume
told napier generate in.jsonl
told napier generate in.jsonl -m model --memory 100K 2>few.err # what it needs depends on the number of cores
sed 's/need [0-9]*/need N/' few.err >&2
told napier generate in.jsonl -m model --max-tokens 0
told napier generate in.jsonl -m model --top-p 0
told napier generate in.jsonl -m model --stop ''
told napier generate in.jsonl -m model --min-tokens 9 --max-tokens 8
told napier generate -m model
told napier generate in.jsonl -m model --prompt hello
told napier generate in.jsonl -m model --chat
told napier generate --prompt hello -m model -n 2
told napier generate --prompt hello -m model --entropies
told napier generate in.jsonl -m model --stop-id 288
told napier generate --prompt '' -m model
printf '{"prompt": ""}\n' | told napier generate - -m model
