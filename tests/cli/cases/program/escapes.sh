# File names with terminal commands are shown with escapes; other names are unchanged.
name=$(printf 'a\033]0;title\007b\033[31m')
told_plain() { run "$@"; }
told_plain napier softmax "$name.npy"
told_plain napier kl "$name.jsonl"
told_plain napier umap "$name.npz"
told_plain napier umap "$name.csv" --labels "$name"
told_plain napier softmax "$(printf 'one\ntwo.npy')"
told_plain napier softmax "$(printf 'eight-bit \233m and \302\233m.npy')"
told_plain napier softmax 'Grüße-世界.npy'
printf '1,2\n' >in.csv
told_plain napier softmax in.csv -o "nowhere/$name"
told_plain napier umap in.csv --plot "$name.svg" --plot "$name.svg"
