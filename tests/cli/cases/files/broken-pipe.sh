# A reader that closes the pipe early: no message, exit status 1.
array '<f4' '(1000, 1000)' >big.npy
head -c 4000000 /dev/zero >>big.npy
{ napier softmax big.npy --format csv; echo "[exit $?]" >status; } | head -n 1 | cut -c 1-30
cat status
{ napier softmax big.npy; echo "[exit $?]" >status; } | head -c 8 | od -An -c
cat status
