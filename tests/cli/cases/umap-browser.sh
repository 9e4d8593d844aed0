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
{
    cat map.html
    echo '<script>'
    cat "$here/browser/actions.js"
    echo '</script>'
} >page.html
look() { # fragment
    HOME=$PWD timeout 60 "$browser" --headless --no-sandbox --disable-dev-shm-usage --user-data-dir="$PWD/profile" \
        --enable-unsafe-swiftshader --window-size=1000,800 --dump-dom "file://$PWD/page.html$1" 2>browser.log >dom.html ||
        skip "Chromium does not start here: $(tail -n 1 browser.log)"
}
for fragment in '#webgl' '#2d'; do
    look "$fragment"
    echo "page.html$fragment"
    [ "$fragment" = '#webgl' ] || grep -o 'data-renderer="[0-9a-z]*"' dom.html
    sed -n '/<pre id="report">$/,/<\/pre>/p' dom.html | grep -v pre
done
look ''
grep -o 'data-state="[^"]*"' dom.html
rm -rf profile
