# Invalid JSON Lines: an error names the line, the member and its value. Allowed values are read.
printf '{}' | napier kl - 2>&1 | grep -q 'no cJSON' && skip "built without cJSON"
kl() {
    printf '%s\n' "$1"
    printf '%b' "$1" >in.jsonl
    run napier kl in.jsonl 2>&1
}
kl '{"logprobs": [1, 2], "ref_logprobs": [1]}\n'
kl '{"logprobs": [1, 2], "ref_logprobs": [1, 2, 3]}'
kl '{"logprobs": [1, 2]}'
kl '{"ref_logprobs": [1, 2]}'
kl '{"logprobs": null, "ref_logprobs": [1, 2]}'
kl '{"logprobs": [1, null], "ref_logprobs": [1, 2]}'
kl '{"logprobs": [1, "a\\u0007b"], "ref_logprobs": [1, 2]}'
kl '{"logprobs": [1, [2]], "ref_logprobs": [1, 2]}'
kl '{"logprobs": [1, {}], "ref_logprobs": [1, 2]}'
kl '{"logprobs": [1, true], "ref_logprobs": [1, 2]}'
kl '{"logprobs": [1, 1e39], "ref_logprobs": [1, 2]}'
kl '{"logprobs": 1, "ref_logprobs": [1, 2]}'
kl '{"logprobs": [1], "ref_logprobs": [1], "mask": [2]}'
kl '{"logprobs": [1], "ref_logprobs": [1], "mask": [NaN]}'
kl '{"logprobs": [1], "logprobs": [1], "ref_logprobs": [1]}'
kl '{"logprobs": [1], "ref_logprobs": [1], "info": [{"id": 1}, {"id": 2, "id": 3}]}'
kl '{"logprobs": [1], "ref_logprobs": [1], "mask": [1]}\n\n{"logprobs": [1], "ref_logprobs": [1]}'
kl '{"logprobs": [1], "ref_logprobs": [1]}\n{"logprobs": [1], "ref_logprobs": [1], "mask": [1]}'
kl '[1]'
kl '1'
kl '{"logprobs": [1,], "ref_logprobs": [1]}'
kl '{"logprobs": [1], "ref_logprobs": [1]'
kl '{"logprobs": [1], "ref_logprobs": [1]} {}'
kl "{'logprobs': [1], 'ref_logprobs': [1]}"
kl '{"logprobs": [nan], "ref_logprobs": [1]}'
kl '{"logprobs": [NaNs], "ref_logprobs": [1]}'
kl '{"logprobs": [0x1], "ref_logprobs": [1]}'
kl ''
kl '\n \t\r\n'
kl '{"logprobs": [1\0], "ref_logprobs": [1]}'
kl '\0223NUMPY\01\0'
kl '\0377\0376{\0'
echo 'deep'
{ printf '{"logprobs": ' && head -c 1500 /dev/zero | tr '\0' '[' && echo; } >in.jsonl
run napier kl in.jsonl 2>&1
echo 'long'
head -c 67108865 /dev/zero | tr '\0' ' ' >in.jsonl
run napier kl in.jsonl 2>&1
rm in.jsonl
kl '{"logprobs": [1], "ref_logprobs": [1], "clamp_kl": 2}'
kl '{"logprobs": [1], "ref_logprobs": [1], "kl_estimator": "k3"}'
printf '{"logprobs": [1], "advantage": 1, "beta": 0.1}\n' | told napier grpo -
printf '{"logprobs": [1], "advantage": 1, "loss_type": "dapo"}\n' | told napier grpo -
# Allowed.
kl '{"logprobs": [1], "ref_logprobs": [2], "completion_mask": [0], "old_logprobs": [3], "prompt": "a", "sum": 1, "clamp_kl": null}'
kl '\0357\0273\0277{"logprobs": [1], "ref_logprobs": [2]}\r\n'
kl '{"logprobs": [1], "ref_logprobs": [NaN]}'
kl '{"logprobs": [1, 2], "ref_logprobs": [Infinity, "-Infinity"], "mask": [false, true]}'
kl '{"text": "NaN \\" [Infinity] \\\\", "logprobs": [1], "ref_logprobs": [2], "mask": null, "logits": [[1, 2], {"a": NaN}]}'
kl '{"logprobs": [1e-400, -0], "ref_logprobs": [0, 0]}'
told napier grpo missing.jsonl
told napier grpo .
printf '{"logprobs": [1], "advantage": 1}\n{"logprobs": [1], "advantage": [1]}\n' | told napier grpo -
printf '{"logprobs": [1], "advantage": "high"}\n' | told napier grpo -
printf '{"logprobs": [1, 2], "advantage": [1]}\n' | told napier grpo -
printf '{"logprobs": [1, 2], "advantage": 1, "advantages": [1, 1]}\n' | told napier grpo -
printf '{"logprobs": [1]}\n' | told napier grpo -
