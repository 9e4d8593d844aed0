# A saved map is written like all results: modes and links stay, and devices and standard output work.
printf '0,0\n1,0\n0,1\n1,1\n2,1\n' >a.csv
fit() { run napier umap a.csv --n-neighbors 2 --n-epochs 5 "$@"; }
fit --save-model want.umap
echo precious >other
ln -s other m.umap.part
touch m.umap && chmod 600 m.umap
fit --save-model m.umap
ls -l m.umap | cut -c 1-10
cmp want.umap m.umap
cat other
fit --save-model - >piped.umap
cmp want.umap piped.umap
told napier umap a.csv --n-neighbors 2 --n-epochs 5 --model=0.1.umap
cmp want.umap 0.1.umap
told napier umap a.csv --n-neighbors 2 --save-model - -o -
told napier umap a.csv --n-neighbors 2 --save-model - --quality --n-epochs 5 >both.umap
ln -s /dev/null null
fit --save-model null
[ -c null ] && echo still a device
ln -s /dev/full full
fit --save-model full
# It can be read from standard input and from a pipe, but not from a folder or an endless device.
run_line 'napier umap a.csv --transform - <want.umap >placed.csv'
mkfifo pipe
cat want.umap >pipe &
run_line 'napier umap a.csv --transform pipe >again.csv'
cmp placed.csv again.csv
mkdir folder
told napier umap a.csv --transform folder
told napier umap a.csv --transform /dev/zero
ls -A
