# The forms of options. The last one counts, and -- ends the options.
array '|u1' '(2, 2)' '\001\002\003\005' >in.npy
cp in.npy ./-odd.npy
run napier logsumexp in.npy --format csv --axis 0
run napier logsumexp --axis=0 --format=csv in.npy
run napier logsumexp -a0 -fcsv in.npy
run napier logsumexp -a 1 -f csv -a 0 in.npy
run napier logsumexp -f csv -a 0 -- -odd.npy
run napier logsumexp -f csv -a 0 -- in.npy
run napier logsumexp -a 0 -f csv - <in.npy
