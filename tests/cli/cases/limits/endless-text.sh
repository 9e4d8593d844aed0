# Endless text and endless lines: limits on what is read as a whole, under a memory limit so that the test is short.
limit_or_skip 400000
printf '0,0\n1,0\n0,1\n1,1\n2,1\n' >a.csv
run_line 'tr "\0" 1 </dev/zero | (ulimit -v 1500000; timeout 60 napier softmax - -j 1)'
# Endless text that is needed as a whole.
run_line 'yes 1,2 | (ulimit -v 400000; timeout 60 napier logsumexp - -a 0 -j 1)' 2>&1 | sed 's/[0-9]\{6,\}/N/'
run_line 'yes 1 | (ulimit -v 400000; timeout 60 napier umap a.csv --labels - --plot m.svg -j 1)' 2>&1 | sed 's/[0-9]\{6,\}/N/'
ls -A
