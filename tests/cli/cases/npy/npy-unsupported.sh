# Element types that are refused; the message names them.
for descr in '<c8' '<f16' '|S3' '<U1' '|O' '<M8[ns]' '|V1' '>V2' '<f1' '|f4' '<i3' '<b2' 'f4' '' '<f' '<f44' float32; do
    array "$descr" '(3,)' '\0\0\0\0\0\0\0\0\0\0\0\0' >in.npy
    run napier softmax in.npy
done
npy 1 "{'descr': [('a', '<f4'), ('b', '<f4')], 'fortran_order': False, 'shape': (1,), }" >in.npy
run napier softmax in.npy
printf 'PK\003\004 and so on' >arrays.npz
run napier softmax arrays.npz
printf 'PK\003\004 and so on' >in.npy
run napier softmax in.npy
