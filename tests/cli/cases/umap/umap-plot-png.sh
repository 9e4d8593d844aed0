# A plot as PNG: its size, and the same bytes again. People must judge the picture itself.
printf '0,0\n4,0\n0,3\n4,3\n2,1\n' >map.csv
printf 'rye\nwheat\nrye\n\nbarley & oats\n' >names.txt
napier umap --embedding map.csv --plot map.png 2>err || { grep -q 'no cairo' err && skip "built without cairo"; cat err; }
size() { od -An -tu1 -j16 -N8 "$1" | awk '{ print $3 * 256 + $4, "x", $7 * 256 + $8 }'; }
head -c 8 map.png | od -An -c
size map.png
run napier umap --embedding map.csv --labels names.txt --plot names.png --plot again.png --title 'Cereals'
size names.png
cmp names.png again.png
ls -A
