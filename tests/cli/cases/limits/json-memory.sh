# A line whose numbers take forty times their bytes: refused with a limit and advice, before memory runs out.
[ "$(napier kl /dev/null 2>&1 | grep -c cJSON)" = 0 ] || skip "no cJSON"
limit_or_skip 400000
awk 'BEGIN { printf "{\"logprobs\": [1"; for (i = 0; i < 2000000; i++) printf ",1"; print "]}" }' >wide.jsonl
run_line 'ulimit -v 400000; napier kl wide.jsonl -j 1' 2>&1 | sed 's/[0-9]* MiB/N MiB/'
