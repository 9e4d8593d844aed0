# Every machine has scalar; the rest of the line depends on the machine, and so does which of the parts are built in.
napier info --isa scalar --threads 3 >info
run napier info --isa scalar --threads 3 | sed 's/\(instruction sets  scalar\).*/\1 .../; s/^\(.*version  *\)[0-9.]*$/\1N/; /^processors\|^built in\|^left out/d'
# each part once: in the one line or the other
sed -nE 's/^(built in|left out) +//p' info | sed -E ':a; s/(\([^)]*), /\1; /; ta; s/, /\n/g' | LC_ALL=C sort
