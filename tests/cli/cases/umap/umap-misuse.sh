# Invalid options of umap: a message, where to find help, exit status 2. Invalid files: exit status 1.
printf '0,0\n1,0\n0,1\n1,1\n' >map.csv
array '<f4' '(3,)' "$f4_123" >three.npy
told napier umap
told napier umap map.csv map.csv
told napier umap map.csv --metric euclid
told napier umap map.csv --metrik euclidean
told napier umap map.csv --n-neighbors 1
told napier umap map.csv --n-neighbours 5
told napier umap map.csv --n-components 257
told napier umap map.csv --n-epochs 0
told napier umap map.csv --min-dist -1
told napier umap map.csv --min-dist 2
told napier umap map.csv --spread 0
told napier umap map.csv --a 1
told napier umap map.csv --set-op-mix-ratio 1.5
told napier umap map.csv --learning-rate nan
told napier umap map.csv --seed -1
told napier umap map.csv --init circle
told napier umap map.csv --neighbors hnsw
told napier umap map.csv --target-metric l1
told napier umap map.csv --label-type names
told napier umap map.csv --plot map.bmp
told napier umap map.csv --plot map
told napier umap map.csv --transform a --embedding b
told napier umap map.csv --transform a --save-model b
told napier umap map.csv --inverse-transform a --plot map.svg
told napier umap --embedding map.csv
told napier umap --embedding map.csv --quality
told napier umap --embedding map.csv --plot map.svg --hover three.npy
told napier umap - --labels -
# Found before any work is done.
told napier umap map.csv -o nowhere/map.npy
told napier umap map.csv --plot nowhere/map.svg
told napier umap map.csv --plot .svg/
mkdir folder.svg
told napier umap map.csv --plot folder.svg
told napier umap map.csv --save-model nowhere/map.umap
told napier umap missing.csv
told napier umap --embedding missing.csv --plot map.svg
told napier umap --embedding map.csv --plot map.svg --labels missing.txt
told napier umap --embedding map.csv --plot map.svg --labels three.npy
told napier umap map.csv --labels three.npy
told napier umap --embedding map.csv --plot map.html --hover three.npy
told napier umap map.csv --target three.npy
told napier umap map.csv --embedding three.npy --plot map.svg
told napier umap map.csv --init three.npy
told napier umap map.csv --transform missing.umap
array '<f4' '(1, 1, 3)' "$f4_123" >deep.npy
told napier umap deep.npy
array '<f4' '(0, 3)' >none.npy
told napier umap none.npy
printf '1,2\n' >one.csv
told napier umap one.csv --quality
printf '0,nan\n' >nan.csv
told napier umap --embedding nan.csv --plot map.svg
ls
