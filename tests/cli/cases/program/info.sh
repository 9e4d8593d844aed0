# Every machine has scalar; the rest of the line depends on the machine.
run napier info --isa scalar --threads 3 | sed 's/\(instruction sets  scalar\).*/\1 .../; s/^\(.*version  *\)[0-9.]*$/\1N/'
