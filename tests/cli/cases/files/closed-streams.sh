# Closed standard streams are errors, and no file takes their numbers.
array '<f4' '(3,)' "$f4_123" >in.npy
run_line 'napier softmax in.npy --format csv >&-'
run_line 'napier --version >&-'
run_line 'napier softmax - <&-'
run_line 'napier softmax in.npy -o out.npy 2>&-'
show out.npy
