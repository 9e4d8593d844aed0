# Arrays larger than the buffer, by every method: blocks of rows, states over one row, columns; from a file and a pipe.
# 400 KB of f4: bytes that make small, different, finite numbers.
{
    npy 1 "{'descr': '<f4', 'fortran_order': False, 'shape': (500, 200), }"
    awk 'BEGIN { for (i = 0; i < 100000; i++) { v = (i * 7919) % 900001; printf "%07d\n", v } }' |
        tr -d '\n' | head -c 400000 | tr 0123456789 '\074\300\075\076\277\077\100\275\276\274'
} >in.npy
for command in softmax log-softmax logsumexp; do
    for axis in 0 1 all; do
        napier $command in.npy --axis $axis -o want.npy
        cksum <want.npy
        for buffer in 700 7K 100K; do
            napier $command in.npy --axis $axis --buffer $buffer -o got.npy
            cmp want.npy got.npy || echo "$command $axis $buffer file"
            cat in.npy | napier $command - --axis $axis --buffer $buffer | cat >got.npy
            cmp want.npy got.npy || echo "$command $axis $buffer pipe"
        done
    done
done
