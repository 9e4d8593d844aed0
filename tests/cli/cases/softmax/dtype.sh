# The dtype of the result: the input's, or the requested one. Printed as bits, because text could hide differences.
array '<f4' '(3,)' "$f4_123" >in.npy
for dtype in f32 f16 bf16 f64; do
    for command in softmax log-softmax logsumexp; do
        run napier $command in.npy --dtype $dtype -o out.npy
        show out.npy
    done
done
run napier softmax in.npy --dtype f8
run napier softmax in.npy --dtype float32
