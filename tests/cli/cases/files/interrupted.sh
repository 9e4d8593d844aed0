# Ctrl-C, kill and a closed terminal: the temporary file is removed and the old file stays.
echo precious >out.npy
mkfifo pipe
array '<f4' '(4,)' "$f4_123" >short.npy
for signal in INT TERM HUP; do
    # The input never ends; while the program waits for it, the result's temporary file exists.
    (cat short.npy; until ls -A | grep -c '^\.napier-' >seen; do sleep 0.05; done; sleep 10) >pipe &
    writer=$!
    # timeout, because a shell starts its background commands with INT ignored, which the program would respect.
    timeout --foreground --preserve-status --signal=$signal 2 napier softmax - -o out.npy <pipe
    echo "[exit $?]"
    kill $writer
    wait $writer 2>/dev/null
    cat seen out.npy
    ls -A
done
