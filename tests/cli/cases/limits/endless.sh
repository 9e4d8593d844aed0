# Endless input, and input that is not a file, is refused before it is read.
[ -c /dev/zero ] && [ -c /dev/full ] || skip "no /dev/zero"
printf '0,0\n1,0\n0,1\n1,1\n2,1\n' >a.csv
echo '{"logprobs": [-1, -2], "token_ids": [0, 1]}' >r.jsonl
told timeout 20 napier rubric r.jsonl --rubric a.csv --weights=/dev/full
told timeout 20 napier rubric r.jsonl --rubric /dev/zero
told timeout 20 napier softmax /dev/zero
told timeout 20 napier softmax - </dev/zero
told timeout 20 napier softmax /dev/urandom --input-format csv
told timeout 20 napier umap a.csv --plot m.html --labels /dev/zero
told timeout 20 napier umap a.csv --plot m.html --hover /dev/zero
told timeout 20 napier kl /dev/zero
told timeout 20 napier grpo --logprobs /dev/zero --advantages a.csv
ln -s /dev/zero zero.npz
told timeout 20 napier umap zero.npz
told timeout 20 napier softmax - </dev/null
ls -A
