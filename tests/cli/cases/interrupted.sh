# Ctrl-C and kill: the temporary file is removed and the old file stays.
echo precious >out.npy
mkfifo pipe
array '<f4' '(4,)' "$f4_123" >short.npy
for signal in INT TERM HUP; do
    # A shell starts background commands with INT ignored, and the program respects that; env does not bring it back.
    (sleep 0.1; cat short.npy; sleep 5) >pipe &
    writer=$!
    timeout --foreground --signal=$signal 1 sh -c 'exec napier softmax - -o out.npy <pipe'
    echo "[exit $?]"
    kill $writer
    wait $writer 2>/dev/null
    cat out.npy
    ls -A
done
