# Plots of many categories: a legend up to 30, names on the map beyond; noise is grey and has no name. The names lie at the
# densest points, which tests/python/test_umap_plot.py finds for the same data.
awk 'BEGIN { for (i = 0; i < 320; i++) { j = i * 37 % 320; printf "%d,%d\n", j % 20 * 3, int(j / 20) * 2 } }' >map.csv
awk 'BEGIN { for (i = 0; i < 320; i++) print i % 40 == 3 ? "noise" : "kind " i % 40 }' >many.txt
awk 'BEGIN { for (i = 0; i < 320; i++) print i % 31 == 3 ? "-1" : "kind " i % 31 }' >few.txt
for labels in many few; do
    run napier umap --embedding map.csv --labels $labels.txt --plot $labels.svg --plot $labels.html
    grep -c 'r="5.5"' $labels.svg
    grep -c 'fill="#8c9299"' $labels.svg
    grep -E -o 'font-size="1[14]" fill="#fff"' $labels.svg
    grep -c '>kind' $labels.svg
    grep -E '^"(names|noise|marks)"' $labels.html
done
