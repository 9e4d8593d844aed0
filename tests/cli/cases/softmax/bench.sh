# The form of the table; the numbers depend on the machine.
run napier bench --shape 64x100 --seconds 0.01 --threads 1 --isa scalar | sed 's/  *[0-9.][0-9.]*/ N/g; s/napier N/napier V/'
for dtype in f16 bf16 f64; do
    run napier bench --shape 7x3 --dtype $dtype --seconds 0.01 --threads 1 --isa scalar | head -n 1 | cut -d , -f 2-
done
