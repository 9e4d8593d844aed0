"""Labels, hover texts, titles and targets: text that ends in a picture or a page."""

import mutate
from case import Case
from formats import npy

SHARE = 100

# None of these may stand in a page or a picture as it is.
SCRIPTS = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!--<script>", "]]></svg><svg onload=alert(1)>"]
TEXTS = SCRIPTS + ["", " ", "a", "b", "1", "1.5", "-1", "nan", "\u00e9\u0301", "\u202e\u2066abc", "\U0001f600" * 40,
                   "\u0301" * 500, "x" * 20000, "'\"&<>", "\\u003c/script>", "\u2028", "=cmd()", "\t", "\x0b", "\ufeff",
                   "&#60;script>"]


def good(rng):
    return Case("good", ["umap", "--embedding", "map.npy", "--labels", "labels.txt", "--plot", "p.svg"],
                {"labels.txt": b"a\nb\n" * 6, "map.npy": npy.table(rng, 12, 2)}, outputs=["p.svg"])


def make(rng, index):
    count = rng.choice([12, 12, 12, 12, 11, 13, 0, 1, 5000])
    lines = [rng.choice(TEXTS).encode() for _ in range(count)]
    what = "odd texts"
    kind = index % 6
    if kind == 0:
        lines = [rng.choice(mutate.NUMBER_TEXTS).encode() for _ in range(count)]
        what = "odd numbers"
    elif kind == 1 and lines:
        lines[rng.randrange(len(lines))] = rng.choice(mutate.NO_UTF8 + [b"\0", b"\x1b[31m", b"\x01\x02", b"\x7f"])
        what = "bytes that are no text"
    elif kind == 2:
        lines = [b"%d" % mutate.number(rng) for _ in range(count)]
        what = "whole numbers at limits"
    data = b"\n".join(lines) + rng.choice([b"\n", b"", b"\r\n", b"\n\n"])
    if kind == 3:
        what, data = mutate.damage(rng, data)
    name = mutate.file_name(rng, "labels.txt")
    option = rng.choice(["--labels", "--labels", "--hover", "--target"])
    plot = rng.choice(["p.html", "p.svg", "p.html", "p.svg", "p.png" if rng.random() < 0.3 else "p.svg"])
    words = ["umap", "--embedding", "map.npy", option, name, "--plot", plot]
    if option == "--target":
        words = ["umap", "map.npy", "--n-epochs", "2", "--n-neighbors", "3", option, name, "--plot", plot,
                 "--target-metric", rng.choice(["categorical", "l2"])]
    if rng.random() < 0.3:
        words += ["--label-type", rng.choice(["auto", "categories", "numbers"])]
    if rng.random() < 0.3:
        words += ["--title", rng.choice(TEXTS[:6] + ["\x1b[31m", "a\nb", "x" * 5000])]
    plane = npy.table(rng, 12, 2)
    return Case(what, words, {name: data, "map.npy": plane}, outputs=[plot],
                never=[s.encode() for s in SCRIPTS] if plot != "p.png" else [])
