# Text is the shortest that reads back with the same bits. The logsumexp of one number is that number.
{
    npy 1 "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 1), }"
    printf '\232\231\231\231\231\231\271\077\001\0\0\0\0\0\0\0\377\377\377\377\377\377\357\177\0\0\0\0\0\0\0\200'
} >f8.npy
run napier logsumexp f8.npy --format csv
echo f32
run napier logsumexp f8.npy --format csv --dtype f32
echo f16
run napier logsumexp f8.npy --format csv --dtype f16
echo bf16
run napier logsumexp f8.npy --format csv --dtype bf16
echo f16 subnormal, largest
array '<f2' '(2, 1)' '\001\0\377\173' | run napier logsumexp - --format csv
echo bf16 third, largest
array '<V2' '(2, 1)' '\253\076\177\177' | run napier logsumexp - --format csv
echo f32 third, subnormal
array '<f4' '(2, 1)' '\253\252\252\076\001\0\0\0' | run napier logsumexp - --format csv
