# NAPIER_THREADS and NAPIER_ISA stand for --threads and --isa. The options win, empty is unset, a bad value is reported.
threads() { "$@" | grep threads; }
chosen() { "$@" | grep chosen; }
threads env NAPIER_THREADS=3 napier info
threads env NAPIER_THREADS=3 napier info --threads 2
threads env NAPIER_THREADS=x napier info --threads 2
chosen env NAPIER_ISA=scalar napier info
chosen env NAPIER_ISA=sse9 napier info --isa scalar
chosen env NAPIER_ISA= NAPIER_THREADS= napier info --isa=scalar
for value in 0 -1 x 1.5 1025 99999999999999999999 ' 2'; do
    run env NAPIER_THREADS="$value" napier info
done
run env NAPIER_ISA=sse9 napier info
run env NAPIER_ISA=sse9 napier softmax in.npy
run env NAPIER_THREADS=many napier bench
run napier info --threads 0
run napier info --isa AVX2
