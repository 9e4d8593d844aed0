# Conversations in Qwen3's chat format.
napier tokenize /dev/null --model "$here/../support/tiny_tokenizer.json" 2>&1 |
    grep -q 'has no tokenizer' && skip "built without tokenizer"
printf '{}' | napier kl - 2>&1 | grep -q 'no cJSON' && skip "built without cJSON"
cp "$here/../support/tiny_tokenizer.json" tokenizer.json
cat >chat.jsonl <<'END'
{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]}

{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb"}, {"role": "user", "content": "c"}]}
END
told napier tokenize chat.jsonl -m . --chat
told napier tokenize chat.jsonl -m . --chat --count --no-generation-prompt
told napier tokenize chat.jsonl -m . --chat --text
told napier tokenize chat.jsonl -m . --chat --text --no-thinking
told napier tokenize chat.jsonl -m . --chat --text --no-generation-prompt

run_line 'echo "{\"messages\": []}" | napier tokenize - -m . --chat'
run_line 'echo "{\"messages\": [{\"role\": \"user\"}]}" | napier tokenize - -m . --chat'
run_line 'echo "{\"messages\": [{\"role\": \"robot\", \"content\": \"\"}]}" | napier tokenize - -m . --chat'
run_line 'printf "%s\n" "{\"messages\": [{\"role\": \"user\", \"content\": \"a\\u0000b\"}]}" | napier tokenize - -m . --chat'
run_line 'echo "{\"messages\": 3}" | napier tokenize - -m . --chat'
run_line 'echo nonsense | napier tokenize - -m . --chat'
told napier tokenize chat.jsonl -m . --chat --no-thinking --no-generation-prompt
