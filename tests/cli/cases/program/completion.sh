# The scripts are valid, and complete commands, options, words and (by saying nothing) files.
napier completion bash >napier.bash && napier completion zsh >napier.zsh && napier completion fish >napier.fish
cat >try.bash <<'END'
. ./napier.bash
try() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _napier
    echo "$*: ${COMPREPLY[*]}"
}
try napier soft
try napier help um
try napier softmax --te
try napier softmax --dtype ''
try napier softmax --dtype b
try napier softmax --threads ''
try napier softmax --output ''
try napier softmax --format csv --out
try napier softmax x
try napier nothing --o
END
bash try.bash
for shell in zsh fish; do ! command -v $shell >/dev/null || $shell -n napier.$shell; done
grep -c '^    umap) _arguments' napier.zsh
grep 'from softmax. -l dtype' napier.fish
told napier completion
told napier completion ksh
told napier completion bash zsh
