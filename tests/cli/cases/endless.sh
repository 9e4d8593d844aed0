# What has no end, or is no file, is refused before it is read; limits on what is read as a whole.
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
# A line that never ends. Under a limit on memory, so that the way there is short.
run_line 'tr "\0" 1 </dev/zero | (ulimit -v 1500000; timeout 60 napier softmax - -j 1)'
# Text that never ends, where all of it is wanted.
run_line 'yes 1,2 | (ulimit -v 400000; timeout 60 napier logsumexp - -a 0 -j 1)' 2>&1 | sed 's/[0-9]\{6,\}/N/'
run_line 'yes 1 | (ulimit -v 400000; timeout 60 napier umap a.csv --labels - --plot m.svg -j 1)' 2>&1 | sed 's/[0-9]\{6,\}/N/'
ls -A
