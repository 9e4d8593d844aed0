# OUT may be IN. Links and modes are kept, and no other file remains.
array '<f4' '(3,)' "$f4_123" >in.npy
napier softmax in.npy -o want.npy
cp in.npy same.npy
chmod 640 same.npy
run napier softmax same.npy -o same.npy
cmp want.npy same.npy
ls -l same.npy | cut -c 1-10
ls -l want.npy | cut -c 1-10
mkdir elsewhere
cp in.npy elsewhere/real.npy
ln -s elsewhere/real.npy link.npy
run napier softmax link.npy --axis all --buffer 1 -o link.npy
cmp want.npy elsewhere/real.npy
[ -L link.npy ] && echo still a link
ls -A . elsewhere
