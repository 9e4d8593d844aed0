# The result's format: --format, else OUT's name, else the input's.
array '<f4' '(1, 3)' "$f4_123" >in.npy
printf '1\t2\t3\n' >in.tsv
first() { head -c 6 "$1" | od -An -c | tr -s ' '; }
for out in out.npy out.csv out.tsv out.CSV out.TAB out.txt out; do
    napier softmax in.npy -o $out && first $out
done
for out in out.npy out.csv out.tsv out.txt out; do
    napier softmax in.tsv -o $out && first $out
done
napier softmax in.npy -o out.npy --format tsv && cat out.npy
napier softmax in.npy --format csv -o -
napier softmax in.npy | od -An -c | head -n 1
napier softmax in.tsv
echo input formats
run napier softmax in.tsv --input-format csv
run napier softmax in.tsv --input-format npy
cp in.npy really.csv
run napier softmax really.csv --format csv
run napier softmax really.csv --input-format csv
run napier softmax - --input-format tsv <in.tsv
cp in.tsv unnamed
run napier softmax unnamed
