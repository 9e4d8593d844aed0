# A conversation, line by line.
printf '{}' | napier logprobs - --model . 2>&1 | grep -q 'has no models' && skip "built without models"
tiny_model model
cat >model/chat_template.jinja <<'END'
{%- for m in messages %}
    {%- if m.content == 'no' %}{{ raise_exception('Not that') }}{% endif %}
    {{- '<' ~ m.role ~ '>' ~ m.content }}
{%- endfor %}{{ '<assistant>' if add_generation_prompt }}
END
say() {
    printf '%s\n' "$@" | run napier chat -m model -t 0 --max-tokens 6 $options
}
options=
say 'Hi' 'Again' '/save talk.json' >one
cat one
# What was said is in the file, and the answers are those of generate to the same conversation.
sed 's/"content": "[^"]*"/"content": "..."/g' talk.json
sed 's/, {"role": "assistant", "content": "[^"]*"}]}$/]}/; s/"messages"/"prompt"/' talk.json >prompt.jsonl
napier generate prompt.jsonl -m model -t 0 --max-tokens 6 | sed 's/.*"text": "\(.*\)", "finish.*/\1/' >again
tail -n 1 one | cmp - again && echo "the same answer"
# Commands
options='--system X'
say '/save a.json' '/system Be kind.' 'Hi' '/save b.json' '/reset' '/save c.json' '/system' '/save d.json' '/help' '' '/quit' 'never' >/dev/null
sed 's/"assistant", "content": "[^"]*"/"assistant", "content": "..."/g' a.json b.json c.json d.json
options=
say '/help'
# A refused message is taken back; what is no command is said.
say 'no' '/nonsense' '/save' '//x' '/save e.json' 2>&1 >/dev/null
grep -c '"/x"' e.json
say </dev/null
# A line that is too long or has a byte 0 is left out whole; the next one is answered.
{ head -c 1100000 /dev/zero | tr '\0' a; printf '\nHi\0there\n/save f.json\n'; } | run napier chat -m model 2>&1
cat f.json
told napier chat
told napier chat -m model --max-tokens 0
told napier chat -m nothing
