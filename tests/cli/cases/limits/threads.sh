# Threads that the system refuses: fewer of them, the same bits, no message, no file left over.
array '<f4' '(100000, 3)' >a.npy
yes '@1?2?3' | head -c 1200000 >>a.npy
run napier softmax a.npy -j 1 -o want.npy
(ulimit -d 8000 && napier info -j 1) >/dev/null 2>&1 || skip "the program does not start in 8000 KB of data"
run_line 'ulimit -d 8000; napier softmax a.npy -j 64 -o out.npy'
cmp want.npy out.npy
# A stack may be smaller than usual, but not any size.
run_line 'ulimit -s 256; napier softmax a.npy -j 3 -o out.npy'
cmp want.npy out.npy
run_line 'ulimit -s 64; napier softmax a.npy -j 3 -o none.npy'
rm -f a.npy want.npy out.npy
ls -A
