# Shards of the prompts, and interruptions: joined by line, the outputs of all shards have the bytes of one run, and so has a
# run that was cut off at any byte, or killed.
printf '{}' | napier generate - --model . 2>&1 | grep -q 'has no models' && skip "built without models"
tiny_model model
# Blank lines do not count, and a prompt without responses has no results.
{
    printf '{"prompt": "hello", "responses": [" world", "", " there!"]}\n\n{"prompt": "Hi", "responses": []}\n'
    for n in 1 2 3 4 5 6 7 8 9 10 11; do
        printf '{"prompt": "hello, number %d", "responses": [" one", " two %d"]}\n' $n $n
    done
} >in.jsonl
printf '{"criterion": "It is right."}\n{"criterion": "It is polite.", "weight": -0.5}\n' >criteria.jsonl

generate() { napier generate in.jsonl -m model -n 3 --max-tokens 4 --seed 7 "$@"; }
logprobs() { napier logprobs in.jsonl -m model "$@"; }
judge() { napier judge in.jsonl -m model -c criteria.jsonl "$@"; }
join() { LC_ALL=C sort -m -s -t ' ' -k 2,2n "$@"; }

for command in generate logprobs judge; do
    $command >$command.jsonl
    $command --resume -o resumed.jsonl && cmp resumed.jsonl $command.jsonl && rm resumed.jsonl
    for shards in 2 3 20; do
        rm -f part.*
        for i in $(seq 0 $((shards - 1))); do
            $command --shard $i/$shards -o part.$i
        done
        join part.* | cmp - $command.jsonl && echo "$command: $shards shards make the same bytes"
    done
    run $command --shard 1/3 --resume -o part.2 # another shard's
done
wc -l <part.19 # an empty shard
mkfifo pipe
for out in pipe /dev/full; do # neither can be read to an end
    run generate --resume -o $out
done

# Cut after each of many bytes: no line is lost, and none is there twice
resumes_at() { # command, cut
    head -c $2 $1.small >cut.jsonl
    $1 --shard 0/4 --resume -o cut.jsonl && cmp cut.jsonl $1.small
}
for command in generate logprobs judge; do
    $command --shard 0/4 -o $command.small
    size=$(wc -c <$command.small) same=0 cuts=0
    for cut in $(seq 0 11 $size) $size; do
        cuts=$((cuts + 1))
        resumes_at $command $cut && same=$((same + 1))
    done
    [ $same -eq $cuts ] && echo "$command: the same after a cut at every eleventh byte"
done

# Killed again and again while it writes
for n in $(seq 1 300); do
    printf '{"prompt": "prompt %d: the prompt of this line, which shares little", "responses": ["one", "two"]}\n' $n
done >many.jsonl
kill_often() { # command and its options
    "$@" -o whole.jsonl
    : >killed.jsonl
    for times in 1 2 3 4 5 6; do
        before=$(wc -c <killed.jsonl)
        "$@" -o killed.jsonl --resume &
        while kill -0 $! 2>/dev/null && [ "$(wc -c <killed.jsonl)" -le "$before" ]; do :; done
        kill -9 $! 2>/dev/null
        wait $! 2>/dev/null
    done
    "$@" -o killed.jsonl --resume
    cmp killed.jsonl whole.jsonl && echo "$2: the same after six kills"
}
kill_often napier logprobs many.jsonl -m model
kill_often napier judge many.jsonl -m model -c criteria.jsonl

# Two processes do not write one file
: >locked.jsonl
napier generate many.jsonl -m model -n 400 --max-tokens 200 -o locked.jsonl --resume &
while kill -0 $! && [ "$(wc -c <locked.jsonl)" -eq 0 ]; do :; done
run napier generate many.jsonl -m model -n 400 --max-tokens 200 -o locked.jsonl --resume
kill -9 $!
wait $! 2>/dev/null

# Another's file stays as it is
for command in logprobs judge; do
    printf 'a file of somebody else' >other
    $command --resume -o other
    printf '{"line": 7, "response": 0}\n{"line": 7, "sam' >other
    $command --resume -o other
    cat other && echo
    cp $command.jsonl other
    cat $command.jsonl >>other
    $command --resume -o other
    cmp -s $command.jsonl other || echo "kept"
done

# Damaged: what a file system may leave after a crash, and lines that are none or not the next ones
for command in generate logprobs judge; do
    kept=0
    for damage in '\000\000\000\000' '{"line": 1, \000\000\n' '{"lime' '\377\376' '{"line": 99, "sample": 0, "response": 0}\n' \
        '{"line": 1, "sample": 0, "response": 0}\n' 'null\n' '{"line": 1, "line": 1}\n'; do
        head -n 2 $command.small >other
        printf "$damage" >>other
        cp other before
        $command --shard 0/4 --resume -o other 2>said || cmp other before && grep -q 'napier: other.*resume\|napier: other:3: ' said &&
            kept=$((kept + 1))
    done
    echo "$command: $kept of 8 damaged files stay as they are"
done

# What is no shard
for shard in '' 1 / 1/ /2 2/2 3/2 0/0 -1/2 +0/2 ' 0/2' 0/2x 0/-2 0x0/2 1.0/2 1/2/3 0/1073741825 99999999999999999999/2 \
    0/99999999999999999999 18446744073709551616/18446744073709551617; do
    generate --shard "$shard" 2>&1 | head -n 1
done
told logprobs --shard 2/2
told judge --shard 2/2
told logprobs --resume
told judge --resume -o -
told logprobs --resume -o x.jsonl --plan
told napier generate --prompt hello -m model --shard 0/2
printf '\n\n' | told napier logprobs - -m model --shard 0/2
printf '\n\n' | told napier judge - -m model -c criteria.jsonl --shard 0/2
# Errors of another shard's lines are its own
printf '{"prompt": "a", "response": "b"}\nno JSON\n' >half.jsonl
told napier logprobs half.jsonl -m model --shard 0/2 -o half.out
told napier logprobs half.jsonl -m model --shard 1/2

# The example for Slurm, whose tasks are started here
for i in 0 1 2; do
    SHARDS=3 SLURM_ARRAY_TASK_ID=$i sh "$here/../../examples/slurm_generate.sh" in.jsonl model out -n 3 --max-tokens 4 --seed 7 &
done
wait
SHARDS=3 sh "$here/../../examples/slurm_generate.sh" --join out | cmp - generate.jsonl && echo "the example's tasks make the same bytes"
SHARDS=4 sh "$here/../../examples/slurm_generate.sh" --join out 2>&1 || echo "and a shard is missing"
