# A plot as SVG, compared exactly: categories, values, and no labels; one, two and three components.
printf '0,0\n4,0\n0,3\n4,3\n2,1\n' >map.csv
printf 'rye\nwheat\nrye\n\nbarley & oats\n' >names.txt
run napier umap --embedding map.csv --labels names.txt --plot names.svg --title 'Cereals <&> "grain"'
cat names.svg
printf '0.5\n1\nnan\n2.5\n-1\n' >values.txt
run napier umap --embedding map.csv --labels values.txt --plot values.svg
grep -v stop values.svg
printf '1\n2\n4\n' >line.csv
run napier umap --embedding line.csv --plot line.svg
grep -E 'svg|text|circle' line.svg
printf '0,0,9\n0,0,1\n' >deep.csv
run napier umap --embedding deep.csv --plot deep.svg
grep -E 'text|circle' deep.svg
# It writes the same file again, and over an old one.
run napier umap --embedding map.csv --labels names.txt --plot again.svg --plot values.svg --title 'Cereals <&> "grain"'
cmp names.svg again.svg
cmp names.svg values.svg
ls -A
