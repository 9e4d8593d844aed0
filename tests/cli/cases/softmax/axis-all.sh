# The whole array as one row; the result has the same shape. logsumexp is a single number.
array '|u1' '(2, 3)' '\001\002\003\004\006\010' >in.npy
run napier softmax in.npy --axis all --format csv
run napier log-softmax in.npy --axis all --format csv
run napier logsumexp in.npy --axis all --format csv
run napier logsumexp in.npy --axis all --dtype f32 -o out.npy
show out.npy
printf '1,2,3\n4,6,8\n' | run napier softmax - --axis=all
