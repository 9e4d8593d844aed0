# Logits are divided by T first.
echo 1,2,3 | run napier softmax - --temperature 2
echo 0.5,1,1.5 | run napier softmax -
echo 1,2,3 | run napier softmax - -t 1e-300
echo 1,2,3 | run napier log-softmax - -t1e300
echo 1,2,3 | run napier logsumexp - --temperature=.5
array '<f4' '(3,)' "$f4_123" | run napier softmax - -t 1e-300 --format npy
for t in 0 -1 nan inf 1e999 '' x 1,5 0x1p3 1e-400; do
    echo 1,2,3 | run napier softmax - --temperature "$t"
done
