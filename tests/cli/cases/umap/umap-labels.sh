# Which labels are categories and which are values, and their order in the legend.
seq 24 | sed 's/.*/&,1/' >map.csv
legend() { # arguments
    echo "-- $*"
    napier umap --embedding map.csv --plot map.svg "$@" || { echo "[exit $?]"; return; }
    awk '/<\/g>/ { text = "" } # names on the map come first
        /<text/ { gsub(/<[^>]*>/, ""); text = text "|" $0 }
        END { print substr(text, 2) }' map.svg
}
seq 24 | awk '{ print $1 % 3 }' >few.txt
seq 24 | awk '{ print "group " $1 % 12 }' >natural.txt
seq 24 | awk '{ print $1 / 4 }' >values.txt
seq 24 | awk '{ print "species " $1 }' >many.txt
seq 24 | awk '{ print $1 % 4 ? "" : "known" }' >blank.txt
printf 'a\r\nb\r\n"c d"\r\n%s' "$(seq 21)" >endings.txt
printf '\303\244\n\377\nx\001y\nz\357\277\276\n%s\n' "$(seq 20 | sed 's/.*/x/')" >bytes.txt
legend
legend --labels few.txt
legend --labels few.txt --label-type numbers
legend --labels natural.txt
legend --labels values.txt
legend --labels values.txt --label-type categories
legend --labels many.txt
legend --labels many.txt --label-type numbers
legend --labels blank.txt
legend --labels endings.txt
legend --labels bytes.txt
cat few.txt | legend --labels -
array '|u1' '(24,)' '\0\1\2\0\1\2\0\1\2\0\1\2\0\1\2\0\1\2\0\1\2\0\1\2' >few.npy
legend --labels few.npy
array '|u1' '(25,)' '\0\1\2\0\1\2\0\1\2\0\1\2\0\1\2\0\1\2\0\1\2\0\1\2' >short.npy
legend --labels short.npy
array '|O' '(24,)' >object.npy
legend --labels object.npy
printf '1\n\0002\n' >zero.txt
legend --labels zero.txt
: >empty.txt
legend --labels empty.txt
