#!/usr/bin/env python3
"""Fails where a line of numerics version 1 has changed or is gone, or where docs/numerics.md counts them otherwise.

    tests/bits/frozen.py            checks; the last line counts: "N passed, N failed"
    tests/bits/frozen.py --write    seals the lines that are new, and writes the table of docs/numerics.md

A line is one of tests/bits/v1/golden*.txt, or of a file in tests/bits/v1/files its name and the SHA-256 of its bytes. frozen.txt
beside them has, for each sealed line, eight digits of the SHA-256 of "TABLE LINE". Lines may be added; no digits leave
frozen.txt.
"""
import hashlib
import re
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "docs" / "numerics.md"
BEGIN, END = "<!-- frozen: written by tests/bits/frozen.py -->\n", "<!-- end -->"
ROOMS = {"golden": "softmax and its family", "golden_rl": "tokens, sampling, losses", "golden_umap": "maps",
         "golden_linear": "products", "golden_attention": "attention", "golden_layers": "layers", "golden_files": "files",
         "golden_model": "language models", "golden_shards": "sums over ranks"}


def operation(table, name):
    if table == "golden":
        return name.split(":")[0].split("/")[0]
    if table == "golden_files":
        return name.split(".")[-1]
    if table == "golden_umap":
        return "distances" if "zeros:" in name else re.sub(r"\d|.*:", "", name).split("/")[0]
    if table == "golden_attention":
        return "attention_backward" if name.endswith(":back") else "attention"
    if table == "golden_rl" and name.startswith("token:"):
        return "token_logprobs_backward" if name.endswith("/backward") else "token_logprobs"
    return re.sub(r"\d*$", "", name.split(":")[0])


def main():
    sealed_at, lines = HERE / "v1" / "frozen.txt", {}
    for path in sorted((HERE / "v1").glob("golden*.txt")):
        lines[path.stem] = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    lines["files"] = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"
                      for path in sorted((HERE / "v1" / "files").iterdir())]
    digits = {hashlib.sha256(f"{table} {line}".encode()).hexdigest()[:8]: f"{table}: {line}"
              for table in lines for line in lines[table]}
    sealed = set(sealed_at.read_text().split()) if sealed_at.exists() else set()
    text = [f"| of | operations, each with the number of its lines: {sum(len(lines[table]) for table in ROOMS)} |\n|---|---|\n"]
    for table, what in ROOMS.items():
        counts = Counter(operation(table, line.split()[0]) for line in lines[table])
        text.append(f"| {what} | {', '.join(f'`{name}` {count}' for name, count in counts.items())} |\n")
    document = DOCUMENT.read_text()
    before, rest = document.split(BEGIN)
    wanted = before + BEGIN + "".join(text) + END + rest.split(END, 1)[1]
    if "--write" in sys.argv:
        every = sorted(sealed | set(digits))
        sealed_at.write_text("".join(" ".join(every[i:i + 14]) + "\n" for i in range(0, len(every), 14)))
        DOCUMENT.write_text(wanted)
        return 0
    gone, new = sealed - set(digits), set(digits) - sealed
    for line in sorted(new):
        print(f"FAIL  not sealed: {digits[line]}")
    for line in sorted(gone):
        print(f"FAIL  sealed, and changed or gone: the line {line}")
    if document != wanted:
        print("FAIL  docs/numerics.md: the table of frozen lines is not that of tests/bits/v1")
    failed = len(gone) + len(new) + (document != wanted)
    print(f"{len(digits) - len(new)} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
