# Another program shortens a mapped file: a message, exit status 1, and no file left.
head -c 400000 /dev/zero >zeros
array '<f4' '(100, 1000)' >p.npy
cat zeros >>p.npy
cp p.npy q.npy
mkfifo pipe
# The first file is open and its size is known, while the second has not arrived yet.
(
    sleep 0.5
    : >p.npy
    cat q.npy >pipe
) &
run napier kl --logits p.npy --ref-logits pipe -o kl.npy
wait
ls -A
