# An instruction set that this machine lacks is an error that names the option and the variable.
for isa in neon avx2 avx512; do
    napier info | grep -q "instruction sets.* $isa" && continue
    napier info --isa $isa 2>&1 | sed "s/$isa/ISA/"
    NAPIER_ISA=$isa napier info 2>&1 | sed "s/$isa/ISA/"
    exit 0
done
skip "this machine has every instruction set"
