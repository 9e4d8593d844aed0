#!/bin/sh
# tests/cli/browser/frames.sh MAP.html - measures the time of an .html plot's frames in headless Chromium, without WebGL
# and with it (drawn by the processor if there is no display).
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
{
    echo "<script>'use strict'; {" | cat "$1" - "$here/common.js" "$here/frames.js"
    echo '}</script>'
} >"$work/page.html"
for fragment in '#2d' '#webgl'; do
    HOME=$work timeout 120 chromium --headless --no-sandbox --disable-dev-shm-usage --enable-unsafe-swiftshader \
        --user-data-dir="$work/profile" --window-size=1280,860 --dump-dom "file://$work/page.html$fragment" 2>/dev/null |
        sed -n '/<pre id="report">$/,/<\/pre>/p' | grep -v pre
done
