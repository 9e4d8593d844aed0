# On a terminal an .npy result is shown as text.
command -v script >/dev/null || skip "no script(1)"
script -qec true /dev/null </dev/null >/dev/null 2>&1 || skip "no pseudo-terminal here"
array '<f4' '(1, 3)' "$f4_123" >in.npy
script -qec 'napier softmax in.npy' /dev/null </dev/null | tr -d '\r'
script -qec 'napier softmax in.npy --format tsv' /dev/null </dev/null | tr -d '\r'
