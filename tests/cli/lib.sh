# What the cases share. Sourced by run.sh.

# Runs a command; a failure is printed as a line and does not end the case. `told` also says on both streams what runs.
run() {
    "$@"
    _status=$?
    [ $_status -eq 0 ] || echo "[exit $_status]"
}
# The same for a command line; its standard output may go elsewhere.
run_line() { run sh -c "$1"; }
told() {
    echo "\$ $*"
    echo "\$ $*" >&2
    run "$@"
}

skip() {
    echo "$*"
    exit 77
}

# npy MAJOR DICT: the start of an .npy file on standard output; elements follow from printf.
npy() {
    _size=$((${#2} + 1))
    _start=$([ "$1" -eq 1 ] && echo 10 || echo 12)
    while [ $(((_start + _size) % 16)) -ne 0 ]; do _size=$((_size + 1)); done
    _length=$(printf '\\%03o\\%03o' $((_size % 256)) $((_size / 256)))
    [ "$1" -eq 1 ] || _length=$_length'\000\000'
    printf '\223NUMPY\00'"$1"'\000'"$_length"
    printf '%-*s\n' $((_size - 1)) "$2"
}

# array DESCR SHAPE [BYTES]: an .npy file in C order, BYTES as printf takes them.
array() {
    npy 1 "{'descr': '$1', 'fortran_order': False, 'shape': $2, }"
    printf "${3:-}"
}
fortran_array() {
    npy 1 "{'descr': '$1', 'fortran_order': True, 'shape': $2, }"
    printf "${3:-}"
}

# The header of an .npy file as text, and its elements in hexadecimal.
show() {
    dd if="$1" bs=1 skip=10 count=118 2>/dev/null | sed 's/ *$//'
    tail -c +129 "$1" | od -An -v -tx1 | sed 's/^ //'
}

# 1, 2, 3 in some types.
f4_123='\0\0\200\077\0\0\0\100\0\0\100\100'
f8_123='\0\0\0\0\0\0\360\077\0\0\0\0\0\0\0\100\0\0\0\0\0\0\010\100'
