# The edge cases: rows of only -inf, NaN, +inf, finite masks, one element, large numbers.
cat >in.csv <<END
-inf,-inf,-inf
nan,1,2
inf,1,2
inf,-inf,nan
-inf,1,2
-1e30,1,2
-1e9,0,-40
1e308,1e308,-1e308
0,0,0
END
for command in softmax log-softmax logsumexp; do
    told napier $command in.csv
    told napier $command in.csv --masked-rows zero
    told napier $command in.csv --dtype f16
done
