# A first line whose first field is not a number is a header. It is kept if the result has the same columns and separator.
printf 'cat,dog\n1,2\n3,4\n' | run napier softmax -
printf '"a ""b"", c",2024\n1,2\n' | run napier softmax -
printf 'cat\tdog\n1\t2\n' | run napier softmax -
printf 'cat\tdog\n1\t2\n' | run napier softmax - --format csv
printf 'cat,dog\n1,2\n3,4\n' | run napier logsumexp -
printf 'score\n1\n2\n' | run napier softmax -
printf ',dog\n1,2\n' | run napier softmax - --axis 0
