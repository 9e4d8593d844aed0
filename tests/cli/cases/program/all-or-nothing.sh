# If the last result of a command fails, no other result is written, and the old files stay as they were.
[ -c /dev/full ] || skip "no /dev/full"
printf '0,0\n1,0\n0,1\n1,1\n2,1\n' >a.csv
echo '{"logprobs": [-1, -2], "advantage": 1, "token_ids": [0, 1]}' >r.jsonl
echo precious >old.npy
ln -s /dev/full full
told napier grpo r.jsonl --losses old.npy --gradients new.npy -o /dev/full
told napier rubric r.jsonl --rubric a.csv --rewards new.npy -o /dev/full
told napier umap a.csv --n-neighbors 2 --n-epochs 5 -o new.npy --plot new.svg --save-model full
run_line 'napier umap a.csv --n-neighbors 2 --n-epochs 5 -o new.npy --save-model old.npy --quality >/dev/full'
cat old.npy
ls -A
# Otherwise all are written.
run napier umap a.csv --n-neighbors 2 --n-epochs 5 -o new.npy --plot new.svg --save-model new.umap
ls -A
