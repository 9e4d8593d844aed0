# Versions 1.0, 2.0 and 3.0; keys in any order, either quotes, spaces, no last comma, Python 2's long integers.
dict="{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }"
for version in 1 2 3; do
    { npy $version "$dict"; printf "$f4_123"; } | run napier softmax - --format csv
done
for dict in "{'shape': (1, 3), 'descr': '<f4', 'fortran_order': False}" \
    '{"descr":"<f4","fortran_order":False,"shape":(1,3,)}' \
    "{ 'fortran_order' : False , 'shape' : ( 1L , 3L ) , 'descr' : '<f4' , }"; do
    { npy 1 "$dict"; printf "$f4_123"; } | run napier softmax - --format csv
done
