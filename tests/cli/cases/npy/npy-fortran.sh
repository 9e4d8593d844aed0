# [[1 2 3] [4 6 8]] in Fortran order: the same numbers as in C order, and npy results stay in Fortran order.
array '|u1' '(2, 3)' '\001\002\003\004\006\010' >c.npy
fortran_array '|u1' '(2, 3)' '\001\004\002\006\003\010' >f.npy
for axis in 0 1 all; do
    for command in softmax log-softmax logsumexp; do
        echo "$command $axis"
        napier $command c.npy --axis $axis --format csv >c.csv
        napier $command f.npy --axis $axis --format csv >f.csv
        cat f.csv
        cmp c.csv f.csv
        cat f.npy | napier $command - --axis $axis --format csv | cmp - c.csv
    done
done
for axis in 0 1 all; do
    run napier softmax f.npy --axis $axis -o out.npy --dtype f16
    show out.npy
done
echo logsumexp, three dimensions
fortran_array '|u1' '(2, 1, 3)' '\001\004\002\006\003\010' >f.npy
for axis in 0 1 2; do
    run napier logsumexp f.npy --axis $axis -o out.npy --dtype f16
    show out.npy
done
