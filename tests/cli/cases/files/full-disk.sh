# A full device, for results, text and help.
[ -c /dev/full ] || skip "no /dev/full"
array '<f4' '(3,)' "$f4_123" >in.npy
run napier softmax in.npy -o /dev/full
run_line 'napier softmax in.npy >/dev/full'
run_line 'napier softmax in.npy --format csv >/dev/full'
run_line 'napier --help >/dev/full'
run_line 'napier --version >/dev/full'
run_line 'napier info >/dev/full'
run napier softmax in.npy -o /dev/null
ls -l /dev/full | cut -c 1
