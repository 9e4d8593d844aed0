# --columns: by name, by number and by range, in the order of the file; text columns may be left out.
printf 'id,x,"the y",2\nrow one,0,1,5\nrow two,3,1,nan\n' >named.csv
printf 'a\t1\t2\nb\t3\t5\n' >plain.tsv
for columns in 'x,the y' 'the y,x' 2-3 3,2 2 4 2-4; do
    run napier softmax named.csv --format csv --columns "$columns"
done
run napier softmax plain.tsv --format csv --columns 2-3
run napier logsumexp plain.tsv --columns 3 --axis 0
for columns in z 'x,' 0 5 3-2 2-9 1 '' x,1 -1 99999999999999999999; do
    run napier softmax named.csv --columns="$columns"
done
run napier softmax named.csv
printf '1,2\n3,4,5\n' | run napier softmax - --columns 1
napier softmax plain.tsv --columns 2-3 -o map.npy
run napier softmax map.npy --columns 1
awk 'BEGIN { print "name,u,v,w"; for (i = 0; i < 40; i++) print "n" i "," i % 7 "," i % 5 "," i % 3 }' >table.csv
cut -d, -f2,4 table.csv >cut.csv
napier umap table.csv --columns u,w --n-epochs 20 -o a.npy
napier umap cut.csv --n-epochs 20 -o b.npy
cmp a.npy b.npy
printf x >in.npz
run napier umap in.npz --columns 1 -o c.npy
