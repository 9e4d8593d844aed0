#!/bin/bash
# tests/run_all.sh - runs every test, group by group, and ends with one line: "N passed, N failed, N skipped".
#
#     tests/run_all.sh [--quick] [--peers] [--only GROUP[,GROUP...]] [--list]
#
# --quick: samples instead of every float and a thousand million elements, and short fuzzing. --peers: the group peers, too.
# CC is the first compiler (default: gcc, else cc); JOBS the number of parallel jobs (default: the processors).
# The tests skip what a machine lacks and name it. Everything is built under build/test; logs are in build/test/log.
# Exit status 0: nothing failed.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
self=$root/tests/run_all.sh
work=$root/build/test
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
main_cc=${CC:-$(command -v gcc || command -v cc)}
release=release-${main_cc##*/}
export LC_ALL=C
. "$root/tests/support/compile_once.sh"
export NAPIER_WERROR="${NAPIER_WERROR-ON}"
# use_tls=0: the leak check of clang 14 crashes when it reads the thread-local memory of threads that have ended.
export LSAN_OPTIONS="suppressions=$root/tests/lsan.supp:print_suppressions=0:use_tls=0"

# name, limit in seconds, description. Each group but the first runs beside another one. What many need comes first, then
# what takes longest, so that none is left alone at the end.
groups=(
    "release 1500 the library, the program and the unit tests, built with $main_cc"
    "sanitize 2600 AddressSanitizer and UndefinedBehaviorSanitizer over the unit tests, ThreadSanitizer over threads"
    "peers 3300 what other libraries compute (only with --peers), each in an environment of its own"
    "port 3300 macOS and Windows: compiled by zig, Windows run under wine"
    "cuda 1800 the kernels for GPUs: nvcc's code and its arithmetic, and on a device, where there is one, the tests of the emulated one"
    "opencl 1500 the kernels through a device of OpenCL: golden bits and the tests of the emulated device"
    "arm 1800 AArch64 under emulation: scalar and NEON against the same table"
    "clang 1300 the library, the program and the self-test with clang"
    "bits 1800 one table of golden bits: gcc and clang, -O0 and -O2, every instruction set, 1, 2 and 7 threads"
    "python 1500 the Python package: pip install, its tests against NumPy and SciPy, and its types"
    "install 900 the installed package, as CMake and pkg-config see it"
    "bare 900 the library and the self-test without CMake"
    "hostile 1800 inputs that were made to do harm, through the program: with sanitizers, and for its memory without"
    "exhaustive 900 exp, log, log1p and conversions on every float; a thousand million elements of random rows; double precision"
    "fuzz 900 a short run of every fuzzer, with sanitizers"
    "cli 800 the program, as script and exact expected output"
    "style 900 clang-format; clang-tidy; documents and comments name only what exists"
    "valgrind 700 memory errors and leaks"
)

# ---- What a group uses --------------------------------------------------------------------------------------------------

# A result is a line "pass|fail|skip COUNT TEXT" in $results.
record() { printf '%s %s %s\n' "$1" "$2" "$3" >>"$results"; }

skip() { # name, why
    printf '  skip  %s: %s\n' "$1" "$2"
    record skip 1 "$1: $2"
}

have() { command -v "$1" >/dev/null 2>&1; }

seconds_since() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }'; }

log_of() { printf '%s/%s.log' "$logs" "$(printf '%s' "$1" | tr -c 'A-Za-z0-9._\n-' '_')"; }

# Runs a command for at most $1 seconds; $status and $took describe the result. timeout runs its command in a new process
# group, so this script must pass on its signals.
run_limited() { # seconds, command...
    local start
    start=$(date +%s.%N)
    timeout -k 10 "$@" </dev/null &
    # shellcheck disable=SC2064 # the current process
    trap "kill $! 2>/dev/null; exit 143" INT TERM
    wait $!
    status=$?
    trap - INT TERM
    took=$(seconds_since "$start")
}

# Does the same with its output in $log.
run_logged() { # seconds, name, command...
    local limit=$1
    log=$(log_of "$2")
    shift 2
    printf '+ %s\n' "$*" >"$log"
    run_limited "$limit" "$@" >>"$log" 2>&1
}

# Shows the end of the log and records it.
failed() { # name[, count]
    local how="exit status $status, $took s"
    { [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; } && how="no end after $took s"
    printf '  FAIL  %s (%s)\n' "$1" "$how"
    { grep -B 12 -A 25 -E '^ *(FAIL|E ) ' "$log" | head -n 90; tail -n 15 "$log"; } | sed 's/^/        | /'
    record fail "${2:-1}" "$1"
    return 1
}

passed() { # name[, count]
    printf '  ok    %s%s (%s s)\n' "$1" "${2:+: $2 passed}" "$took"
    record pass "${2:-1}" "$1"
}

# One check: a command that must exit with 0. Exit status 77 means skipped, and its last line says why.
check() { # seconds, name, command...
    run_logged "$@"
    case $status in
    0) passed "$2" ;;
    77) skip "$2" "$(tail -n 1 "$log")" ;;
    *) failed "$2" ;;
    esac
}

# A program that counts its own checks. It prints "N passed, N failed[, N skipped]", and "skip NAME: WHY" or "skip 
# WHY".
check_counted() { # seconds, name, command...
    local name=$2 line good bad
    run_logged "$@"
    [ "$status" -eq 77 ] && { skip "$name" "$(tail -n 1 "$log")"; return 0; }
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    good=${line%% passed*} bad=${line#* passed, } bad=${bad%% failed*}
    if [ -z "$line" ] || { [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; }; then
        failed "$name"
        return
    fi
    while IFS= read -r line; do
        skip "$name" "$line"
    done < <(sed -nE 's/^ *(skip|skipped|SKIP)[: ]+//p' "$log")
    if [ "$bad" -gt 0 ]; then
        record pass "$good" "$name"
        failed "$name" "$bad"
    else
        passed "$name" "$good"
    fi
}

# All tests that ctest has under a label; each is one check.
check_ctest() { # seconds, name, build directory, ctest arguments...
    local limit=$1 name=$2 build=$3 line test good=0
    shift 3
    run_logged "$limit" "$name" ctest --test-dir "$build" -j "$jobs" --output-on-failure "$@"
    while IFS= read -r line; do
        test=$(printf '%s' "$line" | sed -E 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+).*/\1/')
        case $line in
        *"   Passed "*) good=$((good + 1)) ;;
        *"Skipped"*) skip "$name: $test" "its own exit status 77 (not on this machine)" ;;
        *) record fail 1 "$name: $test" ;;
        esac
    done < <(grep -E '^ *[0-9]+/[0-9]+ Test +#' "$log")
    if [ "$status" -ne 0 ]; then
        record pass "$good" "$name"
        grep -q "^fail 1 $name: " "$results"
        failed "$name" $? # 0: each failed test is recorded already
        sed -n '/\*\*\*/,/^ *Start/p' "$log" | head -n 60 | sed 's/^/        | /' # what the tests that failed said
        return 1
    fi
    [ "$good" -gt 0 ] || { skip "$name" "no tests of this kind in the build"; return 0; }
    passed "$name" "$good"
}

# Configures and builds with CMake in $work/NAME. A repeated call costs little. Groups that use one build take turns.
build() { # name, compiler, targets ("all" or names), cmake arguments...
    local name=$1 cc=$2 targets=$3 turn
    shift 3
    exec {turn}>"$work/$name.turn"
    have flock && flock "$turn"
    run_logged 240 "configure $name" cmake -S "$root" -B "$work/$name" "-DCMAKE_C_COMPILER=$cc" "$@"
    if [ "$status" -eq 0 ]; then
        # shellcheck disable=SC2086 # a list of targets
        run_logged 1200 "build $name" cmake --build "$work/$name" -j "$jobs" --target $targets
    fi
    exec {turn}>&-
    if [ "$status" -eq 0 ]; then passed "build $name"; else failed "build $name"; fi
}

# ---- Golden bits ------------------------------------------------------------------------------------------------------

isas="auto scalar neon avx2 avx512" # auto: with the matrix engine, which the named ones go without
mapfile -t goldens < <(grep -v '^#' "$root/tests/bits/programs.list")

# Compares one program with its table, for every instruction set and some numbers of threads: scalar, whose kernels are the
# slowest and see the same shares of rows, only for the last.
check_golden() { # name, table, numbers of threads, command...
    local name=$1 table=$2 counts=$3 isa threads bad="" done_isas=""
    shift 3
    for isa in $isas; do
        for threads in $([ "$isa" = scalar ] && echo "${counts##* }" || echo "$counts"); do
            run_logged 120 "$name $isa $threads" "$@" --isa "$isa" --threads "$threads" --check "$table"
            case $status in
            0) record pass 1 "$name $isa $threads threads" ;;
            77)
                skip "$name $isa" "not in this build or not on this machine"
                continue 2
                ;;
            *) failed "$name $isa $threads threads" || bad=yes ;;
            esac
        done
        done_isas="$done_isas $isa"
    done
    [ -n "$bad" ] || printf '  ok    %s: every line matches on%s, threads %s\n' "$name" "$done_isas" "$counts"
}

# Compares every golden program of a build with its table. Arguments: name, build, and for slow ones "slow" and the
# emulator if they need one. Slow builds leave out some lines. How rows are shared out does not depend on the compiler, so
# one build is run with several numbers of threads.
check_goldens() {
    local name=$1 dir=$work/$2/tests slow=${3:-} emulator=${4:-} line program subject part counts=7
    [ "$2" = "$release" ] && counts="1 2 7"
    for line in "${goldens[@]}"; do
        read -r program subject part _ <<<"$line"
        [ -n "$slow" ] && [ "$part" != all ] || part=
        [ -x "$dir/$program" ] || { skip "golden $subject, $name" "no cJSON, PCRE2 and utf8proc for this build"; continue; }
        # shellcheck disable=SC2086 # nothing, or one word
        check_golden "golden $subject, $name" "$root/tests/bits/v1/$program.txt" "$counts" $emulator "$dir/$program" $part
    done
}

# ---- The groups -----------------------------------------------------------------------------------------------------------

group_release() {
    # with the benchmark's workers: nothing else in the tests compiles them
    build "$release" "$main_cc" all -DCMAKE_BUILD_TYPE=Release -DNAPIER_BENCH=ON || return
    grep -E '^-- (Skipped|exhaustive):' "$logs/configure_$release.log" | sed 's/^-- //' | while IFS= read -r line; do
        skip "${line%% (*}" "${line#*(}"
    done
    check_counted 300 "self-test" "$work/$release/tests/selftest"
    check_counted 60 "calls between objects" "$root/tests/style/symbols.sh" "$work/$release/libnapier.a"
    check_ctest 1200 "unit tests" "$work/$release" -L unit
    check_ctest 200 "seeds of the fuzzers" "$work/$release" -L fuzz
    # shellcheck disable=SC2016 # for the inner shell; a crash has another status than 1
    check 60 "a scrambled order is noticed" bash -c '"$@"; [ $? -eq 1 ]' _ "$work/$release/tests/golden" --isa scalar \
        --scramble --check "$root/tests/bits/v1/golden.txt"
}

group_clang() {
    have clang || { skip clang "no clang on this machine"; return; }
    # The sanitizers' build compiles all tests with clang, too, and runs the seeds of the fuzzers.
    build clang clang "napier napier_cli selftest" -DCMAKE_BUILD_TYPE=Release || return
    check_counted 300 "self-test" "$work/clang/tests/selftest"
}

group_bits() {
    local cc dir
    check_counted 60 "lines that are frozen" python3 "$root/tests/bits/frozen.py"
    for cc in "$main_cc" clang; do
        have "$cc" || { skip "golden bits, ${cc##*/}" "no $cc on this machine"; continue; }
        dir=$release
        [ "$cc" = clang ] && dir=clang
        build "$dir" "$cc" goldens -DCMAKE_BUILD_TYPE=Release && check_goldens "${cc##*/} -O2" "$dir"
        build "$dir-O0" "$cc" goldens -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O0 && check_goldens "${cc##*/} -O0" "$dir-O0" slow
    done
}

group_arm() {
    local cc=aarch64-linux-gnu-gcc qemu isas="scalar neon avx2 avx512" # auto is neon there
    qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64)
    have "$cc" || { skip "AArch64" "no $cc on this machine"; return; }
    [ -n "$qemu" ] || { skip "AArch64" "no qemu-aarch64 on this machine"; return; }
    build arm "$cc" "goldens selftest exhaustive" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux -DBUILD_SHARED_LIBS=OFF \
        -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_EXE_LINKER_FLAGS=-static || return
    check_goldens AArch64 arm slow "$qemu"
    check_counted 200 "self-test, AArch64" "$qemu" "$work/arm/tests/selftest" --quick
    check_counted 200 "sample of all floats, AArch64" "$qemu" "$work/arm/tests/exhaustive" --sample 511
}

# One build for the unit tests and the fuzzers. Of the kinds of undefined behaviour, only those with cheap checks are tested;
# AddressSanitizer finds errors of alignment, null pointers and bounds.
build_asan() { # target
    if have clang; then
        build asan clang "$1" -DCMAKE_BUILD_TYPE=None -DNAPIER_EXAMPLES=OFF -DNAPIER_SANITIZE=address,bool,enum,float-cast-overflow,\
integer-divide-by-zero,return,shift,signed-integer-overflow,unreachable,vla-bound \
            "-DCMAKE_C_FLAGS=-O1 -g1 -fsanitize=fuzzer-no-link"
    else
        build asan "$main_cc" "$1" -DCMAKE_BUILD_TYPE=None -DNAPIER_EXAMPLES=OFF -DNAPIER_SANITIZE=address,undefined \
            "-DCMAKE_C_FLAGS=-O1 -g1"
    fi
}

group_sanitize() {
    local slow="test_softmax_bits|test_softmax_oracle|test_f64|test_streaming|test_signed_zeros|test_fenv" again
    again="^test_(matmul|linear_token_logprobs|attention|attention_backward|project)$|emulated(_1)?$" # as X_engine, emulated_132
    build_asan all &&
        check_counted 300 "self-test, address and undefined" "$work/asan/tests/selftest" --quick &&
        check_ctest 2000 "unit tests, address and undefined" "$work/asan" -L unit -E "$slow|$again" &&
        skip "unit tests with sanitizers: ${slow//|/, }" "minutes there; fuzz_softmax and hostile_allocations make the same calls" &&
        skip "unit tests with sanitizers: $again" "the same as X_engine or as another number of emulated processors"
    export TSAN_OPTIONS=halt_on_error=1
    build tsan "$(command -v clang || echo "$main_cc")" "selftest goldens" -DCMAKE_BUILD_TYPE=None "-DCMAKE_C_FLAGS=-O1 -g1" -DNAPIER_SANITIZE=thread || return
    check_counted 300 "self-test, threads" "$work/tsan/tests/selftest" --quick
    local line program
    for line in "${goldens[@]}"; do # every operation that uses threads
        program=${line%% *}
        [ -x "$work/tsan/tests/$program" ] || { skip "$program, threads" "not in this build"; continue; }
        check 200 "$program, threads" "$work/tsan/tests/$program" --quick --threads 7 --check "$root/tests/bits/v1/$program.txt"
    done
}

group_valgrind() {
    have valgrind || { skip valgrind "no valgrind on this machine"; return; }
    build "$release" "$main_cc" "selftest golden" -DCMAKE_BUILD_TYPE=Release || return
    check_counted 560 "self-test, valgrind" valgrind --quiet --error-exitcode=9 --leak-check=full \
        --errors-for-leak-kinds=definite "$work/$release/tests/selftest" --quick
}

group_exhaustive() {
    build "$release" "$main_cc" "exhaustive random_rows random_f64" -DCMAKE_BUILD_TYPE=Release || return
    local floats="--full" elements=1e9 samples=1e8
    [ -n "${QUICK:-}" ] && floats="--sample 257" elements=2e7 samples=2e6
    # shellcheck disable=SC2086 # one word or two
    check_counted 500 "all floats" "$work/$release/tests/exhaustive" $floats
    check_counted 300 "random rows" "$work/$release/tests/random_rows" --elements "$elements"
    check_counted 300 "exp, log, log1p in double" "$work/$release/tests/random_f64" --samples "$samples"
    grep -hE '(isa|elements|max_ulp)=' "$logs"/*.log | sed 's/^/        /'
}

# Fuzzes one target from its seeds. New inputs go to $work/corpus, and an input that fails to $work/crash.
fuzz() { # target, seconds
    [ -x "$work/asan/tests/$1" ] || { skip "$1" "not in this build: the libraries it needs are not on this machine"; return; }
    mkdir -p "$work/corpus/$1" "$work/crash"
    local quiet=""
    case $1 in fuzz_text | fuzz_jsonl | fuzz_umap_labels | fuzz_umap_npz) quiet=-close_fd_mask=2 ;; esac
    # shellcheck disable=SC2086
    check "$(($2 + 60))" "$1" "$work/asan/tests/$1" -max_total_time="$2" -error_exitcode=1 -timeout=20 -rss_limit_mb=1500 -max_len=4096 $quiet \
        -artifact_prefix="$work/crash/$1-" "$work/corpus/$1" "$root/tests/fuzz/seeds/$1"
    grep -E '^Done [0-9]+ runs' "$log" | sed 's/^/        /'
}

group_fuzz() {
    have clang || { skip fuzz "no clang on this machine, and so no libFuzzer"; return; }
    build_asan fuzzers || return
    local target time=6
    [ -n "${QUICK:-}" ] && time=3
    for target in "$root"/tests/fuzz/fuzz_*.c; do
        fuzz "$(basename "$target" .c)" "$time" &
        while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    done
    wait
}

# 2,000 inputs with sanitizers, and some without them, to measure the program's own memory.
group_hostile() {
    have python3 || { skip hostile "no python3 on this machine"; return; }
    local programs="napier_cli replay_state_load replay_umap_model replay_umap_csr" inputs=2000
    [ -n "${QUICK:-}" ] && inputs=400
    build_asan "$programs" && check_counted 900 "hostile inputs, address and undefined" python3 "$root/tests/hostile/run.py" \
        --program "$work/asan/napier" --inputs "$inputs" --work "$work/hostile-asan"
    build "$release" "$main_cc" "$programs" -DCMAKE_BUILD_TYPE=Release && check_counted 800 "hostile inputs, memory" \
        python3 "$root/tests/hostile/run.py" --program "$work/$release/napier" --inputs "$inputs" --seed memory \
        --work "$work/hostile-release"
}

group_cli() {
    build "$release" "$main_cc" all -DCMAKE_BUILD_TYPE=Release &&
        check_counted 600 "the program" "$root/tests/cli/run.sh" "$work/$release/napier"
}

group_install() { CC=$main_cc check_counted 840 "the installed package" "$root/tests/install/run.sh"; }

group_python() {
    CC=$main_cc check_counted 1100 "the Python package" "$root/tests/python/run.sh" "$work/python"
    check_counted 300 "its types" "$root/tests/style/types.sh" "$work/types" "$work/python/venv/bin/python"
}

group_peers() { check_counted 3200 "other libraries" "$root/tests/peers/run.sh"; }

group_port() { check_counted 3200 "other systems" "$root/tests/port/run.sh" "$work/port"; }

group_bare() { CC=$main_cc check_counted 840 "without CMake" "$root/tests/bare/run.sh"; }

# The tests of the emulated device are unit tests, in every build that has unit tests.
group_cuda() {
    local nvcc plain=""
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
    [ -n "$nvcc" ] || { skip "CUDA" "no nvcc on this machine"; return; }
    # shellcheck disable=SC2016 # for the inner shell
    PATH=$(dirname "$nvcc"):$PATH check 120 "kernels are compiled on request only" bash -c 'rm -rf "$2" && cmake -S "$1" -B "$2" &&
        ! grep -q "^CMAKE_CUDA_COMPILER:" "$2/CMakeCache.txt"' _ "$root" "$work/no-cuda"
    # Without a device only the kernels matter, so the C files are compiled without optimization.
    [ -e /dev/nvidiactl ] || plain="-DCMAKE_C_FLAGS_RELEASE=-O0"
    CUDACXX=$nvcc build cuda "$main_cc" "napier napier_cli napier_device napier_example_cuda_softmax" $plain \
        -DCMAKE_BUILD_TYPE=Release -DNAPIER_CUDA=ON "-DCMAKE_CUDA_COMPILER_LAUNCHER=$root/tests/cuda/ptx.sh;--keep" || return
    KEPT=$work/cuda check_counted 300 "what nvcc made of the kernels" "$root/tests/cuda/ptx.sh"
    check_ctest 800 "on a device" "$work/cuda" -L device
    [ -e /dev/nvidiactl ] && return
    # shellcheck disable=SC2016 # for the inner shell
    check 60 "the first minutes on a GPU, without one" bash -c 'cmake --install "$1" --component device --prefix "$2" >/dev/null &&
        cp "$3/tools/device/first.sh" "$2" && cd "$2" && { ./first.sh device golden test_cuda; [ $? -eq 77 ]; } && tar -tzf logs.tgz | grep golden_rl.log' \
        _ "$work/cuda" "$work/device" "$root"
}

# On the devices of OCL_ICD_VENDORS, else on Intel's driver for CPUs, which only --peers and --only fetch (0.8 GB).
group_opencl() {
    local home=${NAPIER_BENCH_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/napier/bench}
    echo '#include <CL/cl.h>' | "$main_cc" -fsyntax-only -xc - 2>/dev/null || { skip OpenCL "no headers (ocl-icd-opencl-dev)"; return; }
    [ -n "${FETCH:-}" ] && [ -z "${OCL_ICD_VENDORS:-}" ] && "$root/bench/setup.sh" opencl
    [ -d "$home/opencl/vendors" ] && export OCL_ICD_VENDORS=${OCL_ICD_VENDORS:-$home/opencl/vendors}
    [ -n "${OCL_ICD_VENDORS:-}" ] || ls /etc/OpenCL/vendors/*.icd >/dev/null 2>&1 ||
        { skip OpenCL "no driver (bench/setup.sh opencl fetches one for CPUs)"; return; }
    build opencl "$main_cc" opencl_tests -DCMAKE_BUILD_TYPE=Release -DNAPIER_OPENCL=ON -DNAPIER_EXAMPLES=OFF || return
    check_counted 300 "front ends for SPIR-V and AMD's GPUs" "$root/tests/opencl/fronts.sh" "$work/opencl"
    mkdir -p "$work/opencl/kernels"
    OPENCL_TEST_CACHE=$work/opencl/kernels check_ctest 1200 "OpenCL" "$work/opencl" -L opencl
}

group_style() {
    local tool
    check_counted 780 "clang-tidy" "$root/tests/style/tidy.sh" "$work/tidy"
    if have python3; then
        check_counted 60 "names in documents and comments" python3 "$root/tests/style/names.py"
    else
        skip "names in documents and comments" "no python3 on this machine"
    fi
    tool=$(command -v clang-format-14 || command -v clang-format)
    [[ $tool && $("$tool" --version) == *"version 14"* ]] || { skip style "no clang-format 14, which .clang-format is for"; return; }
    # shellcheck disable=SC2046
    check 120 "clang-format" "$tool" --dry-run --Werror $(find "$root"/{include,src,cli,tests,bench,examples,docs/examples} \
        -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null)
}

# ---- One group, in a process of its own, so that its time can be limited; then all groups ------------------------------

if [ "${1:-}" = --group ]; then
    logs=$work/log/$2
    results=$work/log/$2.results
    "group_$2"
    times >"$work/log/$2.times" # not in a pipe: a process of its own has no children
    exit 0
fi

only="" peers=""
while [ $# -gt 0 ]; do
    case $1 in
    --quick) export QUICK=1 ;;
    --peers) peers=yes && export FETCH=yes ;;
    --only) only=,$2, && export FETCH=yes && shift ;;
    --only=*) only=,${1#*=}, && export FETCH=yes ;;
    --list)
        for line in "${groups[@]}"; do
            read -r name _ text <<<"$line"
            printf '%-11s %s\n' "$name" "$text"
        done
        exit 0
        ;;
    *)
        echo "usage: tests/run_all.sh [--quick] [--peers] [--only GROUP[,GROUP...]] [--list]" >&2
        exit 2
        ;;
    esac
    shift
done

sum() { awk -v kind="$1" '$1 == kind { n += $2 } END { print n + 0 }' "${@:2}"; }

# Runs a group and then shows what it printed, because another group runs beside it.
run_group() { # name, limit, description
    local name=$1 limit=$2 results=$work/log/$1.results
    run_limited "$limit" "$self" --group "$name" >"$work/log/$name.out" 2>&1
    if [ "$status" -ne 0 ]; then
        printf '  FAIL  the group %s ended with status %s after %s s (limit %s s)\n' "$name" "$status" "$took" "$limit" \
            >>"$work/log/$name.out"
        record fail 1 "group $name: status $status"
    fi
    printf '%-11s %7s s  %5s s of processor  %5s passed %3s failed %3s skipped\n' "$name" "$took" \
        "$(awk -F'[ms ]+' 'NR == 2 { printf "%.0f", 60 * ($1 + $3) + $2 + $4 }' "$work/log/$name.times" 2>/dev/null)" "$(sum pass "$results")" "$(sum fail "$results")" \
        "$(sum skip "$results")" >"$work/log/$name.summary"
    printf '\n== %s: %s\n%s\n' "$name" "$3" "$(cat "$work/log/$name.out")"
}

if [ -z "$only" ]; then
    free=$(df -Pk "$root" | awk 'NR == 2 { printf "%.1f", $4 / 1e6 }')
    printf 'every test: about 5 GB below build/test (%s GB are free), and on two processors less than an hour.\n' "$free"
    printf 'tests/run_all.sh --quick is shorter, --only GROUP a part of it, --list names the groups.\n\n'
fi

begin=$(date +%s.%N)
trap 'kill $(jobs -rp) 2>/dev/null; wait; exit 143' INT TERM
all=() summaries=()
for line in "${groups[@]}"; do
    read -r name limit text <<<"$line"
    [ -n "$only" ] && [[ $only != *,$name,* ]] && continue
    [ "$name" = peers ] && [ -z "$only$peers" ] && continue
    rm -rf "$work/log/$name" "$work/log/$name.times"
    mkdir -p "$work/log/$name"
    : >"$work/log/$name.results"
    all+=("$work/log/$name.results") summaries+=("$work/log/$name.summary")
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
    printf '   ...  %s\n' "$name"
    run_group "$name" "$limit" "$text" &
    [ "$name" = release ] && wait
done
wait
if [ ${#all[@]} -eq 0 ]; then
    echo "tests/run_all.sh: no such group: ${only//,/ } (--list names them)" >&2
    exit 2
fi

printf '\n== all: %s s\n' "$(seconds_since "$begin")"
cat "${summaries[@]}"
if [ "$(sum skip "${all[@]}")" -gt 0 ]; then
    printf '\nskipped:\n'
    sed -nE 's/^skip [0-9]+ /    /p' "${all[@]}"
fi
if [ "$(sum fail "${all[@]}")" -gt 0 ]; then
    printf '\nfailed:\n'
    sed -nE 's/^fail [0-9]+ /    /p' "${all[@]}"
fi
printf '\n%s passed, %s failed, %s skipped\n' "$(sum pass "${all[@]}")" "$(sum fail "${all[@]}")" "$(sum skip "${all[@]}")"
[ "$(sum fail "${all[@]}")" -eq 0 ]
