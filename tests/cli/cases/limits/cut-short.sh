# Another program shortens a mapped file: a message, exit status 1, and no file left.
head -c 400000 /dev/zero >zeros
array '<f4' '(100, 1000)' >p.npy
cat zeros >>p.npy
cp p.npy q.npy
mkfifo pipe
# The shell waits at `3>pipe` until the program opens the pipe, its second file. The first file is open by then, and its
# size is known.
(
    exec 3>pipe
    : >p.npy
    cat q.npy >&3
) &
run napier kl --logits p.npy --ref-logits pipe -o kl.npy
wait
ls -A
