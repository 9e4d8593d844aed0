# Shapes with 0 have no elements, but a row of length 0 has a logsumexp.
for shape in '(0,)' '(0, 3)' '(3, 0)' '(2, 0, 3)'; do
    for axis in 0 -1 all; do
        echo "$shape $axis"
        array '<f4' "$shape" >in.npy
        run napier softmax in.npy --axis $axis -o out.npy
        show out.npy
        run napier logsumexp in.npy --axis $axis -o out.npy
        show out.npy
        run napier logsumexp in.npy --axis $axis --format csv
    done
done
echo more results than anyone wants
array '<f4' '(1000000000000, 0)' >in.npy
run napier logsumexp in.npy -o out.npy
run napier softmax in.npy -o out.npy
