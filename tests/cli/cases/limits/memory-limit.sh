# Less memory than the array: the program chooses slower methods, with the same bits. If they fail, it names --buffer.
limit_or_skip 70000
yes '@1?2?3' | head -c 80000000 >numbers
for shape in '(10000, 2000)' '(100, 200000)'; do
    array '<f4' "$shape" >big.npy
    cat numbers >>big.npy
    run napier logsumexp big.npy -a 0 -o want.npy
    run_line '(ulimit -v 70000; timeout 120 napier logsumexp big.npy -a 0 -j 1 -o out.npy)'
    cmp want.npy out.npy
    run napier softmax big.npy -a 0 -d f16 -o want.npy
    run napier softmax big.npy -a 0 -d f16 --buffer 4M -o out.npy
    cmp want.npy out.npy
done
run_line '(ulimit -v 70000; napier softmax big.npy -a all -d f64 --buffer 400M -j 1 -o out.npy)' 2>&1 | sed 's/[0-9]\{6,\}/N/'
rm -f numbers big.npy want.npy out.npy
ls -A
