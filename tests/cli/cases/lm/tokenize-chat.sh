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

# Tools, calls and thoughts
cat >tools.jsonl <<'END'
{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1.0}"}}, {"name": "g", "arguments": "{}"}]}, {"role": "tool", "content": "1", "tool_call_id": "1", "name": "f"}], "tools": ["{\"name\": \"f\"}", "{\"name\": \"g\"}"]}
END
told napier tokenize tools.jsonl -m . --chat --text
bad() {
    printf '%s\n' "$1"
    printf '%s\n' "$1" | run napier tokenize - -m . --chat 2>&1
}
bad '{"messages": [{"role": "user", "content": "q", "thinking": "hm"}]}'
bad '{"messages": [{"role": "user", "content": "q", "reasoning_content": "hm"}]}'
bad '{"messages": [{"role": "assistant", "content": "q", "reasoning_content": 3}]}'
bad '{"messages": [{"role": "assistant", "content": "q", "tool_calls": 3}]}'
bad '{"messages": [{"role": "assistant", "content": "q", "tool_calls": [{"name": "f", "arguments": {"x": 1}}]}]}'
bad '{"messages": [{"role": "assistant", "content": "q", "tool_calls": [3]}]}'
bad '{"messages": [{"role": "user", "content": "q"}], "tools": [{"name": "f"}]}'
bad '{"messages": [{"role": "user", "content": "q"}], "tools": ["a\nb"]}'
bad '{"messages": [{"role": "user", "content": "q"}], "chat_template_kwargs": {"enable_thinking": false}}'
bad '{"messages": [3]}'
printf '1 2\n3 x\n' | run napier tokenize - -m . --decode --lines >/dev/null 2>err
cat err
