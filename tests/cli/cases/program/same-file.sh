# No result may replace an input or another result, by any name, or a file in a model's folder.
printf '0,0\n1,0\n0,1\n1,1\n2,1\n' >a.csv
printf '1\n2\n3\n4\n5\n' >labels.txt
cp a.csv want.csv
ln -s a.csv link.csv
ln a.csv hard.csv
mkdir dir
told napier umap a.csv --save-model a.csv
told napier umap a.csv --save-model ./dir/../a.csv
told napier umap a.csv --save-model link.csv
told napier umap link.csv -o a.csv
told napier umap a.csv -o hard.csv
told napier umap a.csv --labels labels.txt --plot m.svg -o labels.txt
told napier umap a.csv -o new.csv --save-model new.csv
told napier umap a.csv -o new.csv --save-model dir/../new.csv
told napier umap a.csv --plot m.svg --plot ./m.svg
told napier umap --embedding a.csv --plot m.svg -o a.csv
echo '{"logprobs": [-1], "ref_logprobs": [-1], "advantage": 1, "token_ids": [0]}' >r.jsonl
told napier kl r.jsonl -o r.jsonl
told napier kl --logits a.csv --ref-logits want.csv -o want.csv
told napier grpo r.jsonl -o g.npy --gradients g.npy
told napier grpo r.jsonl --losses r.jsonl
told napier grpo --logprobs a.csv --advantages want.csv --gradients a.csv
told napier rubric r.jsonl --rubric a.csv -o a.csv
told napier rubric r.jsonl --rubric a.csv -o s.npy --rewards s.npy
echo '{}' >dir/config.json
told napier tokenize labels.txt --model dir -o labels.txt
told napier tokenize labels.txt --model dir -o dir/config.json
told napier logprobs r.jsonl --model dir -o r.jsonl
told napier logprobs r.jsonl --model dir -o dir/config.json
told napier judge r.jsonl --model dir --criteria c.jsonl -o c.jsonl
# Devices may be named twice, and a result may go to a new file.
run napier grpo r.jsonl -o /dev/null --losses /dev/null
cmp a.csv want.csv
ls -A
