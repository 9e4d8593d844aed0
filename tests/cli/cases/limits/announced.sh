# Headers that announce more data than follow: the program takes no memory or disk for data that have not arrived.
# Elements of 40 GB, from a pipe that holds 12 bytes. A limit on files makes a reservation fail that should not be made.
for axis in all 0 -1; do
    array '<f4' '(100000, 100000)' "$f4_123" | run_line "ulimit -f 200000; napier softmax - -a $axis -o out.npy"
done
array '<f4' '(100000, 100000)' "$f4_123" | run_line 'ulimit -f 200000; napier umap - -o out.npy'
fortran_array '<f4' '(100000, 100000)' "$f4_123" | run_line 'ulimit -f 200000; napier softmax - -f csv -o out.csv'
array '<f4' '(100000, 100000)' "$f4_123" >q.npy
array '<f4' '(1, 3)' "$f4_123" >p.npy
run_line 'ulimit -f 200000; napier kl --logits p.npy --ref-logits - <q.npy'
cat q.npy | run_line 'ulimit -f 200000; napier kl --logits - --ref-logits p.npy'
echo '{"logprobs": [-1], "token_ids": [0]}' >r.jsonl
cat q.npy | run_line 'ulimit -f 200000; napier rubric r.jsonl --rubric -'
# Unlimited results from rows without elements.
array '<f4' '(2000000000, 0)' >none.npy
run_line 'ulimit -f 200000; napier logsumexp none.npy -o out.npy'
array '<f4' '(100, 0)' >some.npy
run napier logsumexp some.npy -o out.npy
ls -A
