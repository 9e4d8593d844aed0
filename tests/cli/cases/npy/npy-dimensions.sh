# From 0 to 32 dimensions.
array '<f4' '()' '\0\0\100\100' >scalar.npy
for command in softmax log-softmax logsumexp; do
    for axis in -1 0 all; do
        run napier $command scalar.npy --axis $axis --format csv
    done
    run napier $command scalar.npy -o out.npy
    show out.npy
done
run napier softmax scalar.npy --axis 1
array '<f4' '(3,)' "$f4_123" >vector.npy
run napier softmax vector.npy -o out.npy
show out.npy
run napier logsumexp vector.npy -o out.npy
show out.npy
ones=$(printf '1, %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
array '<f4' "(${ones}3)" "$f4_123" >many.npy
run napier softmax many.npy --format csv
run napier softmax many.npy --axis 30 --format csv
run napier logsumexp many.npy --axis -32 --format csv
run napier logsumexp many.npy -o out.npy
run napier logsumexp many.npy --axis all --format csv
head -c 256 out.npy | tail -c +129 | od -An -c | tail -n 1
echo lines of text run along the last axis
array '|u1' '(2, 2, 3)' '\0\001\002\0\001\004\0\001\006\0\001\010' >in.npy
for axis in 0 1 2; do
    run napier softmax in.npy --axis $axis --dtype f16 --format csv
    run napier logsumexp in.npy --axis $axis --dtype f16 --format csv
done
