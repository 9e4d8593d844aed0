# Axes counted from either end, out of bounds, and not a number.
array '|u1' '(2, 3)' '\001\002\003\004\006\010' >in.npy
for axis in 0 1 -1 -2 +1 all; do
    told napier logsumexp in.npy --axis $axis --format csv
done
for axis in 2 -3 2147483647 -2147483648; do
    told napier softmax in.npy --axis $axis
done
for axis in '' x 1.5 0x1 1e3 All 99999999999; do
    told napier softmax in.npy --axis "$axis"
done
printf '1,2\n' | run napier softmax - --axis 2
printf '1\n2\n' | run napier softmax - --axis 1
