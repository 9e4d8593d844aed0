# docs/digits-map.png is what `make demo` draws: the same bytes, or where other fonts are installed, the same coloured pixels.
digits=$here/../../data/digits
napier umap "$digits/images.npy" -o map.npy --labels "$digits/labels.npy" --title "Handwritten digits" --plot map.png 2>err ||
    { grep -q 'no cairo' err && skip "built without cairo"; cat err; }
cmp -s map.png "$here/../../docs/digits-map.png" || {
    command -v python3 >/dev/null || skip "no python3 to compare pictures drawn with other fonts"
    python3 "$here/same_picture.py" map.png "$here/../../docs/digits-map.png" || echo "draw it again: make demo, build/demo/map.png"
}
rm -f map.npy map.png err
