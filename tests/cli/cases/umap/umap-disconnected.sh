# Points that have nothing in common with any other have no place on the map: NaN in the file, a warning, exit status 0.
{
    for i in 0 1 2 3 4 5 6 7 8 9; do
        echo "1,1,$((i % 2)),$((i % 3 == 0)),0,0"
    done
    echo 0,0,0,0,1,0
    echo 0,0,0,0,0,1
} >data.csv
printf '%s\n' a b a b a b a b a b alone alone >labels.txt
options="--metric jaccard --n-neighbors 4 --n-epochs 20"

# shellcheck disable=SC2086 # words
napier umap data.csv $options -o map.csv --save-model map.model --plot map.svg --labels labels.txt --quality >quality.txt
echo "exit $?"
wc -l <map.csv | tr -d ' '
tail -n 2 map.csv
head -n 10 map.csv | grep -c nan
grep -c alone map.svg
cut -d' ' -f1 quality.txt

echo "transform"
printf '%s\n' 1,1,0,0,0,0 0,0,0,0,2,0 | napier umap - --transform map.model -o new.csv
echo "exit $?"
grep -c nan new.csv

echo "a map with NaN"
napier umap data.csv --embedding map.csv --quality --metric jaccard --n-neighbors 4 | diff quality.txt - | grep -c '^[<>] [tn]'
napier umap --embedding map.csv --plot again.svg --labels labels.txt
echo "exit $?"
printf '%s\n' 1,nan 2,3 | napier umap --embedding - --plot bad.svg
echo "exit $?"

echo "everybody"
# shellcheck disable=SC2086
napier umap data.csv $options --disconnection-distance 1.5 | grep -c nan
echo "only equal points"
# shellcheck disable=SC2086
napier umap data.csv $options --disconnection-distance 1e-9 -o none.csv --plot none.svg
echo "exit $?"
napier umap data.csv --disconnection-distance 0
echo "exit $?"
