# An .html plot in a real browser, with WebGL where that works (the page falls back by itself) and by hand: zoom, drag,
# pinch, hover, legend; labels that would like to be markup.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "no Chromium"
cat >map.csv <<'END'
0,0
4,0
0,3
4,3
2,1
1,2
END
printf '%s\n' '</script><script>intruder=1</script>' '"quoted" & <b>bold</b>' "it's" 'Grüße, 世界' '<img src=x onerror=intruder=1>' '' >labels.txt
printf '%s\n' '' '' '' 'the <i>fourth</i> & last' '' '' >texts.txt
run napier umap --embedding map.csv --labels labels.txt --hover texts.txt --plot map.html --title '</title><script>intruder=1</script>'
with_script() { # page, script
    echo "<script>'use strict'; {" | cat "$1" - "$here/browser/common.js" "$here/browser/$2"
    echo '}</script>'
}
with_script map.html actions.js >page.html
report() { sed -n '/<pre id="report">$/,/<\/pre>/p' dom.html | grep -v pre; }
look() { # fragment
    HOME=$PWD timeout 60 "$browser" --headless --no-sandbox --disable-dev-shm-usage --user-data-dir="$PWD/profile" \
        --enable-unsafe-swiftshader --window-size=1000,800 --dump-dom "file://$PWD/page.html$1" 2>browser.log >dom.html ||
        skip "Chromium does not start here: $(tail -n 1 browser.log)"
}
for fragment in '#webgl' '#2d'; do
    look "$fragment"
    echo "page.html$fragment"
    [ "$fragment" = '#webgl' ] || grep -o 'data-renderer="[0-9a-z]*"' dom.html
    report
done
look ''
grep -o 'data-state="[^"]*"' dom.html
# Maps and values with the full range of their types, or almost none.
printf '%s\n' -1e300 0 1.5e308 -1.5e308 nan >values.txt
for scale in 3e38 1e33 1e-44; do
    awk -v s=$scale 'BEGIN { printf "%s,0\n-%s,%s\n0,-%s\n0,0\n%s,%s\n", s, s, s, s, s, s }' >wide.csv
    run napier umap --embedding wide.csv --labels values.txt --label-type numbers --plot wide.html
    with_script wide.html spans.js >page.html
    for fragment in '#webgl' '#2d'; do
        look "$fragment"
        echo "$scale$fragment"
        report
    done
done
rm -rf profile
