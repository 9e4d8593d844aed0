# A plot as HTML: one file without links, the data as JSON, and nothing in it that could end the script.
printf '0,0\n4,0\n0,3\n4,3\n2,1\n' >map.csv
printf '%s\n' '</script><b>' '"quoted" \ &' "it's" '' 'Grüße' >labels.txt
run napier umap --embedding map.csv --labels labels.txt --plot map.html --title '<i>T</i> & "x"'
grep '<title>' map.html
sed -n '/id="data">/,/<\/script>/p' map.html | grep -v -e '^"colours"'
grep -c '</script>' map.html
grep -n -E '(src|href)=|https?:|url\(|import[ (]|fetch\(' map.html
printf '1\n2\n3\nnan\n5.5\n' >values.txt
run napier umap --embedding map.csv --labels values.txt --plot values.html
sed -n '/id="data">/,/<\/script>/p' values.html | grep -v -e '^"colours"'
run napier umap --embedding map.csv --plot plain.htm
sed -n '/id="data">/,/<\/script>/p' plain.htm
ls -A
