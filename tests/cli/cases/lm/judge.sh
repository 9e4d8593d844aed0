# A tiny model judges responses: results do not depend on the other questions, and use the given values and weights.
printf '{}' | napier judge - --model . --criteria . 2>&1 | grep -q 'has no models' && skip "built without models"
tiny_model model
cat >in.jsonl <<'END'
{"prompt": "2 + 2?", "responses": ["4", "Five."]}
{"prompt": "Hello", "response": "hello world"}
END
cat >criteria.jsonl <<'END'
{"criterion": "The answer is right."}
{"criterion": "It is polite.", "weight": -0.5}
END
told napier judge in.jsonl -m model -c criteria.jsonl
told napier judge in.jsonl -m model -c criteria.jsonl --compute bf16 -o out.jsonl
cat out.jsonl
head -n 1 criteria.jsonl >one.jsonl
told napier judge in.jsonl -m model -c one.jsonl
told napier judge in.jsonl -m model -c one.jsonl --verdict Yes=3 --verdict No=3
printf '{criterion} {response}{nothing}:' >template
told napier judge in.jsonl -m model -c one.jsonl --plain --template template --verdict ' a=1=2' --verdict b=-1

# Errors
printf '{"prompt": "a"}\n' | told napier judge - -m model -c one.jsonl
printf '{"prompt": "a", "response": [1]}\n' | told napier judge - -m model -c one.jsonl
printf '{"criterion": 3}\n' >bad.jsonl
told napier judge in.jsonl -m model -c bad.jsonl
printf '{"criterion": "a", "wieght": 2}\n' >bad.jsonl
told napier judge in.jsonl -m model -c bad.jsonl -o typed.out
printf '{"prompt": "a", "response": "b", "temperature": 2}\n' | told napier judge - -m model -c one.jsonl
printf '{"prompt": "a", "response": "b", "min_p": 0.1}\n' | told napier judge - -m model -c one.jsonl
told napier judge in.jsonl -m model -c nothing
told napier judge in.jsonl -m model
told napier judge in.jsonl -c one.jsonl
told napier judge in.jsonl -m model -c one.jsonl --verdict Yes
told napier judge in.jsonl -m model -c one.jsonl --verdict =1
