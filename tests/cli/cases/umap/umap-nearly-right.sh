# Input that is nearly right: distances below 0 by a rounding, degrees, real numbers for a metric of sets or as categories.
awk 'BEGIN { for (i = 0; i < 30; i++) { for (j = 0; j < 30; j++) printf "%s%s", (j ? "," : ""), i == j ? 0.5 : i % 3 == j % 3 ? -1e-7 : 1; print "" } }' >distances.csv
napier umap distances.csv --metric precomputed --n-epochs 5 -o map.csv
echo "exit $?"
sed '2s/-1e-07/-0.1/' distances.csv | napier umap - --metric precomputed -o none.csv
echo "exit $?"
awk 'BEGIN { srand(1); for (i = 0; i < 40; i++) print rand() * 90 "," rand() * 180 }' >places.csv
napier umap places.csv --metric haversine --n-epochs 5 -o map.csv
napier umap places.csv --metric jaccard --n-epochs 5 -o map.csv
{ awk 'BEGIN { srand(1); for (i = 0; i < 40; i++) print rand() "," rand() }' && echo 500,500; } |
    napier umap - --set-op-mix-ratio 0 --n-neighbors 5 --n-epochs 5 -o map.csv

# A target of measured numbers: as categories they are told, as numbers they are taken, and NaN is not known.
awk 'BEGIN { srand(2); for (i = 0; i < 40; i++) print i % 5 ? rand() : "nan" }' >target.txt
napier umap places.csv --target target.txt --n-epochs 5 -o map.csv
napier umap places.csv --target target.txt --target-metric l2 --n-epochs 5 -o map.csv
echo "exit $?"
