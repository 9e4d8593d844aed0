# Every machine has scalar; the rest of the line is the machine's.
run napier info --isa scalar --threads 3 | sed 's/\(instruction sets  scalar\).*/\1 .../; s/^\(.*version  *\)[0-9.]*$/\1N/'
