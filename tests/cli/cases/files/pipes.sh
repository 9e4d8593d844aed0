# From command to command. An OUT that is not a regular file is written directly.
array '<f4' '(2, 3)' "$f4_123$f4_123" >in.npy
cat in.npy | napier softmax - | napier logsumexp - | napier softmax - --format csv
napier softmax in.npy | napier softmax - -o - | napier logsumexp - --format tsv --axis 0
mkfifo pipe
napier softmax in.npy --format csv -o pipe &
cat pipe
wait $!
[ -p pipe ] && echo still a pipe
# Standard input that is a file, read from the middle.
{ head -c 10 >/dev/null; napier logsumexp - --axis all --buffer 1 --format csv; } <<END
123456789
1,2,3
END
