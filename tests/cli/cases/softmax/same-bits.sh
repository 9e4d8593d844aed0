# The result is the same for all algorithms, threads, instruction sets, buffers, formats and methods of reading.
# 12 x 3000 numbers between -9 and 9, without a random generator.
awk 'BEGIN { for (i = 0; i < 12; i++) { for (j = 0; j < 3000; j++) {
    x = sin(i * 3000 + j) * 9; printf "%.5f%s", x, j < 2999 ? "," : "\n" } } }' >in.csv
napier logsumexp in.csv | head -n 3
for command in softmax log-softmax logsumexp; do
    napier $command in.csv -o want.npy
    for options in '--algorithm safe' '--algorithm online' '--algorithm parallel' '--threads 1' '--threads 7' \
        '--isa scalar' '--buffer 1' '--buffer 10K' '--buffer 100K' '--buffer 1M'; do
        napier $command in.csv $options -o got.npy
        cmp want.npy got.npy || echo "$command $options"
    done
    for isa in neon avx2 avx512; do
        if napier info --isa $isa >/dev/null 2>&1; then
            napier $command in.csv --isa $isa -o got.npy
            cmp want.npy got.npy || echo "$command $isa"
        fi
    done
done
run napier softmax in.csv --algorithm fast
run napier softmax in.csv --algorithm ''
