#!/usr/bin/env python3
"""A map of topics: what Debian packages say of themselves, laid out by `napier umap`, with topics by `napier softmax`.

    python3 examples/topic_map.py [--napier build/release/napier] [--out topic-map] [--most 6000]

Reads the descriptions of all packages that apt knows (`apt-cache dumpavail`), or of those installed
(/var/lib/dpkg/status): any Debian machine has them. Each description becomes a row of TF-IDF weights, then a point in 60
dimensions by a truncated SVD; the map puts packages near those that speak of the same things. A package's topic is the
section whose mean it is nearest to, in cosine: softmax turns the similarities into probabilities. Writes topics.html (open
it in a browser: a point tells its package), topics.png and the .npy files between. Needs numpy (pip install numpy) and
napier (make).
"""

import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
from typing import Iterator

import numpy as np
from numpy.typing import NDArray

BUILT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build", "release", "napier")
WORD = re.compile(r"[a-z][a-z+]{2,}")
COMMON = set(
    """the and for with this that from are can you not has have its which will also other into any all use used using
uses when one more than but was provides package packages contains files based support supports such allows includes library
libraries program programs development dummy transitional your they these been being between each may only over some their them
then there through very was were what while who""".split()
)


def paragraphs() -> Iterator[tuple[str, str, str, str]]:
    """(package, section, description and tags, first line of the description) of every package, once."""
    try:
        text = subprocess.run(["apt-cache", "dumpavail"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        with open("/var/lib/dpkg/status", encoding="utf-8", errors="replace") as file:
            text = file.read()
    seen: set[str] = set()
    for paragraph in text.split("\n\n"):
        fields: dict[str, str] = {}
        first: dict[str, str] = {}
        key = ""
        for line in paragraph.split("\n"):
            if line[:1] in (" ", "\t") and key:
                fields[key] += " " + line.strip()
            elif ":" in line:
                key, value = line.split(":", 1)
                fields[key] = first[key] = value.strip()
        name = fields.get("Package")
        if name and name not in seen and fields.get("Section") and fields.get("Description"):
            seen.add(name)
            text = fields["Description"] + " " + fields.get("Tag", "")
            yield name, fields["Section"].split("/")[-1], text, first["Description"]


def choose(most: int) -> tuple[list[tuple[str, str, str, str]], list[str]]:
    """Packages of the twelve largest sections, evenly spread, but not the transitional ones."""
    found = [p for p in paragraphs() if len(WORD.findall(p[2].lower())) >= 5 and "transitional" not in p[2]]
    form = {"libs", "libdevel", "doc", "oldlibs", "debug", "localization", "introspection", "misc"}  # say no topic
    sections = [s for s, _ in collections.Counter(p[1] for p in found if p[1] not in form).most_common(12)]
    found = [p for p in found if p[1] in sections]
    step = max(1, len(found) // most)
    return found[::step][:most], sections


def tf_idf(texts: list[str], vocabulary: int = 4000) -> NDArray[np.float32]:
    words = [[w for w in WORD.findall(t.lower()) if w not in COMMON] for t in texts]
    spread = collections.Counter(w for text in words for w in set(text))
    kept = [w for w, n in spread.most_common(vocabulary) if n >= 3]
    column = {w: j for j, w in enumerate(kept)}
    x = np.zeros((len(texts), len(kept)), np.float32)
    for i, text in enumerate(words):
        for w, n in collections.Counter(text).items():
            if w in column:
                x[i, column[w]] = (1 + np.log(n)) * np.log(len(texts) / spread[w])
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    return x


def truncated_svd(x: NDArray[np.float32], k: int, rounds: int = 4) -> NDArray[np.float32]:
    """x V of the k leading right singular vectors, by a randomised range finder (Halko, Martinsson and Tropp, 2011)."""
    q = np.random.default_rng(0).normal(size=(x.shape[1], k + 10)).astype(np.float32)
    for _ in range(rounds):
        q, _ = np.linalg.qr(x.T @ (x @ q))
    u, s, _ = np.linalg.svd(x @ q, full_matrices=False)
    return np.asarray((u * s)[:, :k], np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--napier", default=BUILT if os.path.exists(BUILT) else "napier")
    parser.add_argument("--out", default="topic-map")
    parser.add_argument("--most", type=int, default=6000)
    options = parser.parse_args()
    if not shutil.which(options.napier):
        sys.exit(f"topic_map: no program {options.napier}: build it with make, or say where it is with --napier")
    os.makedirs(options.out, exist_ok=True)

    def at(name: str) -> str:
        return os.path.join(options.out, name)

    def run(*words: str) -> None:
        subprocess.run([options.napier, *words], check=True)

    chosen, sections = choose(options.most)
    if len(chosen) < 50:
        sys.exit("topic_map: fewer than 50 descriptions; run apt-get update first")
    names, section, texts, summaries = zip(*chosen)
    print(f"{len(names)} packages in {len(sections)} sections: {', '.join(sections)}")
    points = truncated_svd(tf_idf([n.replace("-", " ") + " " + t for n, t in zip(names, texts)]), 60)
    np.save(at("points.npy"), points)
    with open(at("sections.txt"), "w") as file:
        file.writelines(s + "\n" for s in section)
    with open(at("packages.txt"), "w") as file:
        file.writelines(f"{n}: {t}\n" for n, t in zip(names, summaries))
    run(
        "umap",
        at("points.npy"),
        "-o",
        at("map.npy"),
        "--metric",
        "cosine",
        "--min-dist",
        "0.05",
        "--title",
        "What Debian packages are about",
        "--labels",
        at("sections.txt"),
        "--hover",
        at("packages.txt"),
        "--plot",
        at("topics.html"),
        "--plot",
        at("topics.png"),
    )

    unit = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-9)
    index = np.array([sections.index(s) for s in section])
    means = np.stack([unit[index == i].mean(0) for i in range(len(sections))])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    np.save(at("similarities.npy"), (unit @ means.T).astype(np.float32))
    run("softmax", at("similarities.npy"), "--temperature", "0.05", "-o", at("topics.npy"))
    topics = np.load(at("topics.npy"))
    print(f"the likeliest topic is the package's own section for {np.mean(topics.argmax(1) == index):.0%}; some packages:")
    for i in range(0, len(names), max(1, len(names) // 8)):
        order = np.argsort(-topics[i])[:3]
        print(f"  {names[i]:32.32} {section[i]:12} " + ", ".join(f"{sections[j]} {topics[i, j]:.2f}" for j in order))
    print(f"open {at('topics.html')}")


if __name__ == "__main__":
    main()
