# Log-probabilities of responses under a tiny model: texts, ids and conversations, shared prompts, both modes.
printf '{}' | napier logprobs - --model . 2>&1 | grep -q 'has no models' && skip "built without models"
tiny_model model
cat >in.jsonl <<'END'
{"prompt": "hello", "responses": [" world", "", " there!"]}
{"prompt": [104, 101], "response": [108, 108, 111]}

{"prompt": [{"role": "user", "content": "Hi"}], "responses": ["Hello", [1, 2]]}
END
told napier logprobs in.jsonl --model model
told napier logprobs in.jsonl --model model --compute bf16 --temperature 0.5 -o bf16.jsonl
cut -c 1-120 bf16.jsonl
napier logprobs in.jsonl --model model --plan | sed 's/"bytes": [0-9]*/"bytes": N/'
napier logprobs in.jsonl -m model >all.jsonl
for how in '--isa scalar' '--threads 1' '--threads 7' '--memory 8M'; do
    napier logprobs in.jsonl -m model $how | cmp - all.jsonl && echo "same: $how"
done
told napier logprobs in.jsonl -m model --compute split -o split.jsonl
cut -c 1-120 split.jsonl
for how in '--isa scalar' '--threads 7' '--memory 8M'; do
    napier logprobs in.jsonl -m model --compute split $how | cmp - split.jsonl && echo "split, same: $how"
done
napier logprobs in.jsonl -m model --no-thinking --plan | sed 's/"bytes": [0-9]*/"bytes": N/'
printf '{"prompt": "", "response": [1]}\n' >empty.jsonl
told napier logprobs empty.jsonl -m model
told napier logprobs empty.jsonl -m model --prefix-token 5

# The names of TRL and OpenAI: the same lines as with prompt and response. Messages end their turn, and texts do not.
user='{"role": "user", "content": "Hi"}'
reply='{"role": "assistant", "content": "Hello"}'
end='Hello<|im_end|>\n'
while read -r line; do
    printf '%s\n' "$line" | napier logprobs - -m model | cut -c 1-160
done <<END
{"prompt": "hello", "response": " world"}
{"prompt": "hello", "completion": " world"}
{"prompt": [$user], "response": "<think>\\n\\n</think>\\n\\n$end"}
{"prompt": [$user], "completion": [$reply]}
{"prompt": [$user], "responses": [[$reply]]}
{"messages": [$user, $reply]}
{"messages": [$user], "completion": [$reply]}
{"prompt": [$user], "response": "Hello"}
{"messages": [$user], "completion": "Hello"}
END
printf '{"messages": [%s, %s]}\n' "$user" "$reply" | napier generate - -m model --greedy --max-tokens 2
printf '{"prompt": [%s, %s]}\n' "$user" "$reply" | napier generate - -m model --greedy --max-tokens 2

# One warning of sequences that are longer than the model was trained for.
mkdir short && cp model/* short && sed 's/"head_dim": 4/&, "max_position_embeddings": 4/' model/config.json >short/config.json
for count in 3 4; do
    printf '{"prompt": [5, 6], "responses": [[7], [%s]]}\n' "$(seq -s, $count)" >long.jsonl
    told napier logprobs long.jsonl -m short -o out.jsonl
    told napier generate long.jsonl -m short --ignore-eos --max-tokens $count -o out.jsonl
done
printf '{"prompt": "a", "response": "b"}\n{"prompt": "a", "response": "c"}\n' >long.jsonl
printf '{"criterion": "d"}\n' >criteria.jsonl
told napier judge long.jsonl --criteria criteria.jsonl -m short -o out.jsonl

# Errors
bad() {
    printf '%s\n' "$1"
    printf '%s\n' "$1" | run napier logprobs - -m model 2>&1
}
bad '{"responses": ["a"]}'
bad '{"prompt": "a"}'
# Settings, which the result would not have, and what else a line may hold
for setting in '"temperature": 0.5' '"top_p": 0.9' '"prefix_token": 3' '"max_completion_tokens": 9' '"logprobs": true' '"n": 2' \
    '"compute": "bf16"' '"enable_thinking": false' '"sampling_params": {}'; do
    bad '{"prompt": "a", "response": "b", '"$setting}"
done
printf '{"prompt": "he", "response": "l", "temperature": null, "id": 7, "logprobs": [-1], "tools": []}
{"prompt": "he", "response": "l", "id": 8, "answ\\ner": "x", "1":1, "2":2, "3":3, "4":4, "5":5, "6":6, "7":7}\n' >carried.jsonl
told napier logprobs carried.jsonl -m model -o carried.out
bad '{"messages": "a", "response": "b"}'
bad '{"prompt": "a", "messages": [{"role": "user", "content": "a"}]}'
bad '{"prompt": "a", "response": "b", "completion": "c"}'
bad '{"prompt": "a", "completion": [{"role": "assistant", "content": "b"}]}'
bad '{"messages": [{"role": "user", "content": "a"}]}'
bad '{"messages": [{"role": "user", "content": "a"}], "completion": [{"role": "user", "content": "b"}]}'
bad '{"messages": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant"}]}'
bad '{"prompt": "a", "response": "b", "responses": ["c"]}'
bad '{"prompt": "a", "responses": "b"}'
bad '{"prompt": "a", "responses": ["b", 3]}'
bad '{"prompt": [1, 2.5], "response": "b"}'
bad '{"prompt": [1, -2], "response": "b"}'
bad '{"prompt": [300], "response": "b"}'
bad '{"prompt": "a", "responses": ["b", [1, 288]]}'
bad '{"prompt": "", "responses": ["", "b"]}'
bad '{"prompt": [{"role": "user", "content": "a", "tools": []}], "response": "b"}'
bad '{"prompt": "a", "tools": ["{}"], "response": "b"}'
chat='{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}'
printf '{"prompt": [%s], "response": "b"}\n' "$chat" >plain.jsonl
printf '{"prompt": [%s, "tool_calls": [{"name": "f", "arguments": "{}"}]}], "tools": ["{}"], "response": "b"}\n' "${chat%?}" >tools.jsonl
napier logprobs plain.jsonl -m model >plain.out
run napier logprobs tools.jsonl -m model >tools.out
cmp -s plain.out tools.out && echo "tools make no difference"
bad '{"prompt": "a", "response": "b\u0000c"}'
bad '{"prompt": [{"role": "user"}], "response": "b"}'
bad '{"prompt": [{"role": "pope", "content": "a"}], "response": "b"}'
bad ''
told napier logprobs in.jsonl -m nothing
told napier logprobs in.jsonl -m in.jsonl
told napier logprobs in.jsonl -m Qwen/nothing
napier logprobs in.jsonl -m model --memory 1K 2>&1 | sed 's/need [0-9]*/need N/'
told napier logprobs in.jsonl
told napier logprobs -m model
told napier logprobs in.jsonl -m model --temperature 0
told napier logprobs in.jsonl -m model --compute f16
told napier logprobs in.jsonl in.jsonl -m model
