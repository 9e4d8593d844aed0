# Forms of CSV and TSV: one number, spaces, quotes, CRLF, comments, blank lines, byte order mark, no last newline.
echo 5 | run napier softmax -
echo 1,2,3 | run napier softmax -
printf '1\t2\t3\n' | run napier softmax -
printf ' 1 , "2" ,\t3 \r\n1,2,3\r\n' | run napier softmax - --input-format csv
printf '# made by hand\n\n1,2,3\n   \n# end\n1,2,3' | run napier softmax -
printf '\357\273\2771,2,3\n' | run napier softmax -
printf '+1e0,.2E1,3.\n' | run napier softmax -
echo 'nan,1' | run napier softmax -
echo '-inf,1,-Infinity' | run napier softmax -
echo 'INF,1' | run napier logsumexp -
echo '1e999,1' | run napier logsumexp -
# A vector: one column, or one row.
printf '1\n2\n3\n' | run napier softmax -
printf '1\n2\n3\n' | run napier logsumexp -
# Columns.
printf '1,2\n3,4\n' | run napier softmax - --axis 0
printf '1,2\n3,4\n' | run napier logsumexp - --axis 0
printf '1,2\n3,4\n' | run napier logsumexp -
printf '1,2\n3,4\n' | run napier logsumexp - --axis all
