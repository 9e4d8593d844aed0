# Responses as arrays: flat with offsets, or a table with a mask; the same result as JSON Lines.
printf -- '-0.5\n-1.25\n-2\n-0.25\n-3\n' >lp.csv
printf -- '-0.5\n-1.5\n-2\n-1\n-3\n' >old.csv
printf '0\n3\n3\n5\n' >offsets.csv
printf '1\n2\n-1\n' >adv.csv
told napier grpo --logprobs lp.csv --old old.csv --advantages adv.csv --offsets offsets.csv --gradients flat.csv
cat flat.csv
if ! printf '{}' | napier kl - 2>&1 | grep -q 'no cJSON'; then
    cat >batch.jsonl <<'END'
{"logprobs": [-0.5, -1.25, -2], "old_logprobs": [-0.5, -1.5, -2], "advantage": 1}
{"logprobs": [], "old_logprobs": [], "advantage": 2}
{"logprobs": [-0.25, -3], "old_logprobs": [-1, -3], "advantage": -1}
END
    napier grpo batch.jsonl -o lines.json --gradients lines.csv
    napier grpo --logprobs lp.csv --old old.csv --advantages adv.csv --offsets offsets.csv -o arrays.json
    cmp lines.csv flat.csv
    cmp lines.json arrays.json
fi
# A table, its rows padded; gradients have its shape.
printf -- '-0.5,-1.25,-2\n-0.25,-3,0\n' >lp2.csv
printf -- '-0.5,-1.5,-2\n-1,-3,7\n' >old2.csv
printf '1,1,1\n1,1,0\n' >mask2.csv
printf '1\n-1\n' >adv2.csv
told napier grpo --logprobs lp2.csv --old old2.csv --advantages adv2.csv --mask mask2.csv --gradients table.csv
cat table.csv
told napier kl --logprobs lp2.csv --ref old2.csv --mask mask2.csv
told napier rubric --logprobs lp2.csv --token-ids mask2.csv --rubric lp2.csv -f csv
# Types and orders of elements.
array '<f8' '(3,)' "$f8_123" >f8.npy
array '<f4' '(3,)' "$f4_123" >f4.npy
array '<i8' '(2,)' '\0\0\0\0\0\0\0\0\003\0\0\0\0\0\0\0' >ends.npy
told napier kl --logprobs f4.npy --ref f8.npy --offsets ends.npy
fortran_array '|u1' '(2, 2)' '\001\002\003\004' >fortran.npy
printf '1,3\n2,4\n' >c.csv
told napier kl --logprobs fortran.npy --ref c.csv
run_line 'napier kl --logprobs - --ref c.csv <c.csv'
# Errors name what is wrong.
told napier kl --logprobs f4.npy --ref f4.npy
told napier kl --logprobs c.csv --ref c.csv --offsets ends.npy
told napier kl --logprobs c.csv --ref f4.npy
told napier grpo --logprobs c.csv --advantages f4.npy
for offsets in '0 2' '1 3' '0 2 1 3' '0 4 3' '0 1.5 3' '0 -1 3' '3' '0 nan'; do
    echo "$offsets" | tr ' ' '\n' >bad.csv
    told napier kl --logprobs f4.npy --ref f4.npy --offsets bad.csv
done
printf '0,1\n' >two.csv
told napier kl --logprobs f4.npy --ref f4.npy --offsets two.csv
told napier kl --logprobs c.csv --ref c.csv --mask c.csv
printf '1,3\n2,1e300\n' >far.csv
told napier kl --logprobs c.csv --ref far.csv
array '<f4' '(999999999999, 0)' >none.npy
told napier kl --logprobs none.npy --ref none.npy
array '<f4' '(1, 1, 3)' "$f4_123" >deep.npy
told napier kl --logprobs deep.npy --ref deep.npy
told napier kl --logprobs missing.npy --ref c.csv
