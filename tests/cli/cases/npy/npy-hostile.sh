# Headers made to break a reader. Each gives a message and exit status 1.
bad() {
    npy "${2:-1}" "$1" >in.npy
    printf "$f4_123" >>in.npy
    run napier softmax in.npy
}
descr="'descr': '<f4'"
order="'fortran_order': False"
shape="'shape': (3,)"
bad ""
bad "{"
bad "{}"
bad "{$descr, $order}"
bad "{$descr, $shape}"
bad "{$order, $shape}"
bad "{$descr, $order, $shape, 'extra': 1}"
bad "{$descr, $descr, $order, $shape}"
bad "{$descr $order, $shape}"
bad "{$descr, $order, $shape"
bad "{$descr, $order, $shape} and more"
bad "{$descr, $order, $shape,,}"
bad "{'descr': '<f4, $order, $shape}"
bad "{'descr': 4, $order, $shape}"
bad "{'de\\u0073cr': '<f4', $order, $shape}"
bad "{$descr, 'fortran_order': 0, $shape}"
bad "{$descr, 'fortran_order': __import__('os').system('true'), $shape}"
bad "{$descr, $order, 'shape': 3}"
bad "{$descr, $order, 'shape': (3)}"
bad "{$descr, $order, 'shape': [3]}"
bad "{$descr, $order, 'shape': (-3,)}"
bad "{$descr, $order, 'shape': (3.0,)}"
bad "{$descr, $order, 'shape': (0x3,)}"
bad "{$descr, $order, 'shape': (3 3)}"
bad "{$descr, $order, 'shape': (,)}"
bad "{$descr, $order, 'shape': (9223372036854775807,)}"
bad "{$descr, $order, 'shape': (9223372036854775808,)}"
bad "{$descr, $order, 'shape': (4294967296, 4294967296)}"
bad "{$descr, $order, 'shape': (0, 4294967296, 4294967296)}"
bad "{$descr, $order, 'shape': (1000000000000,)}"
many=$(printf '1, %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33)
bad "{$descr, $order, 'shape': ($many)}"
echo versions and lengths
bad "{$descr, $order, $shape}" 4
bad "{$descr, $order, $shape}" 0
printf '\223NUMPY\001\001\020\0' >in.npy
run napier softmax in.npy
printf '\223NUMPY\002\0\377\377\377\377' >in.npy
run napier softmax in.npy
printf '\223NUMPY\002\0\0\0\001\0' >in.npy
run napier softmax in.npy
printf '\223NUMPY\001\0\377\377{' >in.npy
run napier softmax in.npy
for size in 1 5 6 7 8 9 10; do
    printf '\223NUMPY\001\0\020\0' | head -c $size >in.npy
    run napier softmax in.npy
done
run napier softmax - <in.npy
printf 'not numpy at all' >in.npy
run napier softmax in.npy
: >in.npy
run napier softmax in.npy
