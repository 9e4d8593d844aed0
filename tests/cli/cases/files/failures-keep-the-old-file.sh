# After any failure the old file is as it was and no other file remains.
echo precious >out.npy
array '<f4' '(4,)' "$f4_123" >short.npy
run napier softmax short.npy -o out.npy
cat short.npy | run napier softmax - -o out.npy
printf '1,2\n3\n' >ragged.csv
run napier softmax ragged.csv -o out.npy
echo precious >out.csv
run napier softmax ragged.csv -o out.csv
# A limit on the size of files, in blocks of 512 bytes.
array '<f4' '(100, 1000)' >big.npy
head -c 400000 /dev/zero >>big.npy
(ulimit -f 100 && run napier softmax big.npy -o out.npy)
cat out.npy out.csv
ls -A
