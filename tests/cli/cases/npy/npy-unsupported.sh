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
# Files of other programs: what they are, and how to convert them.
printf 'PAR1\025\004\025' >in.parquet
printf 'ARROW1\000\000' >in.feather
printf '\211HDF\r\n\032\n' >in.h5
printf '\037\213\010' >in.csv.gz
printf '\200\004\225' >in.pkl
printf '(\265/\375' >in.zst
printf 'PAR1,x\n1,2\n' >in.csv
for name in parquet feather h5 csv.gz pkl zst csv; do
    run napier softmax in.$name
done
printf '1,2\n3,4\n' >map.csv
run napier umap --embedding map.csv --labels in.parquet --plot map.svg
run napier kl in.parquet
