# A map of the digits: the same bytes however it is made, kept, used again, measured. What the numbers are is for the tests
# of the library.
data=$here/../../data/digits
digits=$data/images.npy
[ -f "$digits" ] || skip "no digits"
fit() { run napier umap "$@" --n-epochs 30; }
fit "$digits" -o map.npy
head -c 128 map.npy | tail -c +11 | sed 's/ *$//'
fit "$digits" -o one.npy --threads 1
fit "$digits" -o three.npy --threads 3
fit "$digits" -o scalar.npy --isa scalar
fit "$digits" >pipe.npy
for other in one three scalar pipe; do cmp map.npy $other.npy; done
fit "$digits" -o seed.npy --seed 43
cmp -s map.npy seed.npy && echo "another seed, the same map"
# A pipe brings the same table as text.
od -An -v -tu1 -w64 -j128 "$digits" | sed 's/^ *//; s/  */,/g' >digits.csv
fit - -o text.npy <digits.csv
cmp map.npy text.npy
# The results: files, and nothing on standard output that was not requested.
fit "$digits" --save-model digits.umap --plot map.svg --plot map.html --labels "$data/labels.npy"
grep -c '<circle' map.svg
run napier umap --embedding map.npy --plot again.svg --labels "$data/labels.npy"
cmp map.svg again.svg
fit "$digits" --quality --labels "$data/labels.npy" | awk '{ print $1, ($NF > 0.4 && $NF <= 1) }'
run napier umap "$digits" --embedding map.npy --quality 2>&1 | awk '{ print $1, ($NF > 0.4 && $NF <= 1) }'
fit "$digits" --quality -o - 2>report >map2.npy
cmp map.npy map2.npy
wc -l <report | tr -d ' '
# New points on the map: a row does not depend on the others.
run napier umap "$digits" --transform digits.umap -o placed.csv
sed -n '11,20p' digits.csv >ten.csv
run napier umap ten.csv --transform digits.umap -o ten-placed.csv --threads 2
sed -n '11,20p' placed.csv | cmp - ten-placed.csv
run napier umap ten-placed.csv --inverse-transform digits.umap -o back.npy
head -c 128 back.npy | tail -c +11 | sed 's/ *$//'
# Supervised, with few labels known; densMAP; another metric, start and number of components.
od -An -v -tu1 -w1 -j128 "$data/labels.npy" | awk '{ print NR % 10 ? "" : "digit " $1 }' >some.txt
fit "$digits" --target some.txt -o some.npy
fit "$digits" --target "$data/labels.npy" --target-metric l2 -o numbers.npy
fit "$digits" --densmap -o dense.npy
fit "$digits" --metric cosine --init pca --n-components 3 -o cosine.npy
fit "$digits" --init map.npy --min-dist 0.5 -o start.npy
for other in some numbers dense cosine start; do
    cmp -s map.npy $other.npy && echo "$other: the same map"
    od -An -v -tf4 -j128 $other.npy | grep -c -i -E 'nan|inf'
done
# Mistakes that are found when the files are read.
told napier umap ten-placed.csv --transform digits.umap
told napier umap digits.csv --inverse-transform digits.umap
head -c 1000 digits.umap >cut.umap
told napier umap ten.csv --transform cut.umap
told napier umap ten.csv --transform map.npy
told napier umap --embedding digits.umap --plot map.svg
printf '1,2\n3,nan\n' >nan.csv
told napier umap nan.csv
printf '1,2\n' | run napier umap -
