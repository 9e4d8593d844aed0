# Float64 data far from 0 keep their digits; where they cannot, a warning tells.
awk 'BEGIN { srand(1); for (i = 0; i < 120; i++) printf "%.4f,%.4f,%.4f\n", i % 3 * 8 + rand(), rand(), i % 3 * 4 + rand() }' >near.csv
awk -F, '{ printf "1000000%08.4f,1000000%08.4f,1000000%08.4f\n", $1 + 100, $2 + 100, $3 + 100 }' near.csv >far.csv
awk 'BEGIN { for (i = 0; i < 120; i++) print i % 3 }' >labels.txt
for data in near far; do
    napier umap $data.csv --n-epochs 50 -o $data-map.csv --save-model $data.model --labels labels.txt --quality | sed -n 3p
    echo "exit $?"
    napier umap $data.csv --transform $data.model | grep -vc nan
done
echo "a row of zeros"
{ cat far.csv && echo 0,0,0; } >zero.csv
napier umap zero.csv --n-epochs 5 -o zero-map.csv
echo "exit $?"
echo "very small numbers"
awk -F, '{ print $1 "e-25," $2 "e-25," $3 "e-25" }' near.csv >small.csv
napier umap small.csv --n-epochs 50 --labels labels.txt --quality -o small-map.csv | sed -n 3p
