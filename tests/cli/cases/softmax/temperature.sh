# Logits are divided by T first.
echo 1,2,3 | run napier softmax - --temperature 2
echo 0.5,1,1.5 | run napier softmax -
echo 1,2,3 | run napier softmax - -t 1e-300
echo 1,2,3 | run napier log-softmax - -t1e300
echo 1,2,3 | run napier logsumexp - --temperature=.5
array '<f4' '(3,)' "$f4_123" | run napier softmax - -t 1e-300 --format npy
# A quotient that overflows would make the row NaN.
echo 1e308,1 | run napier softmax - -t .5
echo inf,1 | run napier softmax - -t .5
array '<f4' '(2,)' '\346\261\141\177\000\000\200\077' | run napier softmax - -t .5 --format csv
array '<f4' '(2,)' '\346\261\141\177\000\000\200\077' | run napier softmax - -t .5 --format csv -d f64
array '<f4' '(1, 2)' '\346\261\141\177\000\000\200\077' >in.npy
run napier softmax in.npy -t .5 --axis 0 --buffer 1 -o out.npy
for t in 0 -1 nan inf 1e999 '' x 1,5 0x1p3 1e-400; do
    echo 1,2,3 | run napier softmax - --temperature "$t"
done
