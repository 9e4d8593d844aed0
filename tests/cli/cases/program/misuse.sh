# Invalid command lines: a message, where to find help, exit status 2.
array '<f4' '(3,)' "$f4_123" >in.npy
told napier
told napier frobnicate
told napier softmx in.npy
told napier gpro in.npy
told napier help log_softmax
told napier gen
told napier xx
told napier --frobnicate
told napier help frobnicate
told napier help softmax info
told napier softmax
told napier softmax in.npy in.npy
told napier softmax in.npy --frobnicate
told napier softmax in.npy --axs 1
told napier softmax in.npy --temp 1
told napier softmax in.npy --te 1
told napier umap in.npy --x
told napier softmax in.npy --temprature=2
told napier softmax in.npy -x
told napier softmax in.npy -hx
told napier softmax in.npy --axis
told napier softmax in.npy -o
told napier softmax in.npy --help=yes
told napier softmax in.npy --masked-rows maybe
told napier softmax in.npy --format xlsx
told napier softmax in.npy --input-format npz
for size in 0 -1 x 1T 1.5M K 2000G 9223372036854775807G; do
    told napier softmax in.npy --buffer $size
done
told napier info in.npy
told napier info --axis 1
told napier bench in.npy
for shape in 0x5 5 x 5x 5x5x5 99999999999x99999999999 -1x4; do
    told napier bench --shape $shape
done
told napier bench --seconds 0
told napier bench --dtype f8
