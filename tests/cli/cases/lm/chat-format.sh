# The chat format of a model's folder, and a tokenizer that adds a BOS.
printf '{}' | napier logprobs - --model . 2>&1 | grep -q 'has no models' && skip "built without models"
tiny_model model
printf '{"messages": [{"role": "user", "content": " Hi "}]}\n' >chat.jsonl
told napier tokenize chat.jsonl -m model --chat --text
cat >model/tokenizer_config.json <<'EOF'
{"chat_template": "{{ bos_token }}{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] + eos_token}}"}
EOF
told napier tokenize chat.jsonl -m model --chat --text
told napier tokenize chat.jsonl -m model/tokenizer.json --chat --text
cp model/tokenizer.json model/other.json
told napier tokenize chat.jsonl -m model/other.json --chat --text
(cd model && told napier tokenize ../chat.jsonl -m other.json --chat --text)
echo "{{ '[INST]' }}" >model/chat_template.jinja
told napier tokenize chat.jsonl -m model --chat --text
for format in qwen2.5 llama3 llama2 mistral-v0.1 mistral-v0.2; do
    told napier tokenize chat.jsonl -m model --chat --text --chat-format $format
done
told napier tokenize chat.jsonl -m model --chat --text --chat-format llama3.1 --chat-date '1 May 2026'
told napier tokenize chat.jsonl -m model --chat --text --chat-format llama3 --no-thinking
told napier tokenize chat.jsonl -m model --chat-format llama3
told napier tokenize chat.jsonl -m model --chat-date x
told napier tokenize chat.jsonl -m model --chat --chat-format llama3 --chat-date x

# A prompt that is a text has the BOS once; ids, responses and conversations are taken as they are.
sed 's/"post_processor": {"type": "ByteLevel"/"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "b"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"b": {"ids": [279]}}, "x": "ByteLevel"/' \
    model/tokenizer.json >with && mv with model/tokenizer.json
printf 'hello' >text
told napier tokenize text -m model
told napier tokenize text -m model --add-special
printf '%s\n' '{"prompt": "hello", "response": " world"}' '{"prompt": "<|im_start|>hello", "response": " world"}' \
    '{"prompt": [279, 259], "response": [264]}' >in.jsonl
napier logprobs in.jsonl -m model | sed 's/.*logprobs": \([^]]*\)].*/\1/' | uniq | wc -l
napier logprobs in.jsonl -m model --plan | sed 's/"bytes": [0-9]*/"bytes": N/'
napier logprobs in.jsonl -m model --no-bos --plan | sed 's/"bytes": [0-9]*/"bytes": N/'
printf '{"prompt": [{"role": "user", "content": "Hi"}], "response": "a"}\n' >talk.jsonl
told napier logprobs talk.jsonl -m model
napier logprobs talk.jsonl -m model --chat-format qwen3 --plan | sed 's/"bytes": [0-9]*/"bytes": N/'
napier logprobs talk.jsonl -m model --chat-format llama2 --plan | sed 's/"bytes": [0-9]*/"bytes": N/'

# A template that no format writes is run: with its own system text, tokens, and refusals in its own words.
cat >model/chat_template.jinja <<'END'
{%- if messages[0]['role'] != 'system' %}{{ bos_token }}system: I am Tiny.{{ '\n' }}{% endif %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}{{ raise_exception('Tools are beyond me') }}{% endif %}
    {{- m.role ~ ': ' ~ m.content | trim ~ eos_token ~ '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'assistant:' }}{% if enable_thinking is defined and not enable_thinking %} at once{% endif %}
{%- endif %}
END
echo '{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "not this one"}' >model/tokenizer_config.json
told napier tokenize chat.jsonl -m model --chat --text
told napier tokenize chat.jsonl -m model --chat --text --no-thinking
told napier tokenize chat.jsonl -m model --chat --text --chat-date x
printf '{"messages": [{"role": "tool", "content": "1"}]}\n' >tool.jsonl
told napier tokenize tool.jsonl -m model --chat --text
napier check-model model | grep 'chat format'
printf '%s\n' 'a' "{% include 'x' %}" >model/chat_template.jinja
told napier tokenize chat.jsonl -m model --chat --text
echo '{% set r = range(9999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}' >model/chat_template.jinja
told napier tokenize chat.jsonl -m model --chat --text
napier check-model model | grep 'chat format'
