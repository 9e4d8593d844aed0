# A short file is an error, found before anything is written if the file's size is known; a long one is a warning.
array '<f4' '(4,)' "$f4_123" >in.npy
run napier softmax in.npy -o out.npy
run napier softmax - --format csv <in.npy
cat in.npy | run napier softmax - --format csv
array '<f4' '(4,)' >in.npy
run napier logsumexp in.npy
array '|i2' '(2, 2)' >in.npy
run napier logsumexp in.npy
cat in.npy | run napier softmax - --axis all --buffer 1 -o out.npy
array '<i2' '(2, 2)' '\001\0\002\0\003' >in.npy
cat in.npy | run napier softmax - --axis all --buffer 1 -o out.npy
cat in.npy | run napier softmax - --axis 0 -o out.npy
fortran_array '<i2' '(2, 2)' '\001\0\002\0\003' >in.npy
cat in.npy | run napier softmax - --axis all -o out.npy
ls
echo too long
array '<f4' '(2,)' "$f4_123" >in.npy
run napier softmax in.npy --format csv
run napier softmax - --format csv <in.npy
