#!/usr/bin/env python3
"""Fails where a document or a comment names a file or a symbol of Napier's that does not exist, and where a public
function has no example.

    tests/style/names.py [ROOT]

Looked at: *.md, and the comments of C, CUDA, Python and shell files. A name is
    a path or a file name that ends like a source file: src/README.md, softmax.inc.h, <napier/rl.h>
    a word that begins with napier_ or NAPIER_; a trailing * or _ makes it a prefix
A path counts as found where a tracked file ends with it, a symbol where some file has it outside of comments.
Every function of include/napier/*.h but MPI's also needs an example in docs/examples.
The last line counts: "N passed, N failed".
"""
import re
import subprocess
import sys
from pathlib import Path

CODE = (".c", ".h", ".cu", ".py", ".pyi", ".sh", ".cmake", ".txt", ".in", ".toml", ".yml")
PATH = re.compile(r"(?<![\w./~$*{}%<>-])(?:\.{0,2}/)?(?:[A-Za-z0-9_.-]+/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*"
                  r"\.(?:inc\.h|c|h|cu|py|sh|md)(?![\w/*]|\.\w)")
SYMBOL = re.compile(r"\b(?:napier|NAPIER)_\w+\*?")
# NEWS tells of what has gone; a table of results names no files.
HISTORY = {"NEWS.md"}
# Other projects' files, and files that the build makes.
FOREIGN = re.compile(r"^(?:/|build/|std\w+\.h|math\.h|string\.h|fenv\.h|omp\.h|cmocka\.h|unistd\.h|umap_\.py|calibrate\.c|test_parametric_umap\.py|Python\.h|"
                     r"plot_page\.h)")
# Names that stand for others.
EXAMPLE = re.compile(r"NAME|FILE|_X_|_x_")


def tracked(root):
    try:
        listing = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, check=True)
        return [name for name in listing.stdout.decode().split("\0") if name and (Path(root) / name).is_file()]
    except (OSError, subprocess.CalledProcessError):  # no git, or no checkout
        pass
    skip = {"build", ".git", ".cache", ".venv", "__pycache__"}
    return [str(p.relative_to(root)) for p in Path(root).rglob("*")
            if p.is_file() and not skip & set(p.relative_to(root).parts)]


def split(name, text):
    """The comments of a source file, with every other character a space so that lines still count; and the code."""
    if name.endswith((".c", ".h", ".cu")):
        pattern = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|/\*.*?\*/|//[^\n]*'
        is_comment = lambda s: s.startswith("/")  # noqa: E731
    elif name.endswith((".py", ".pyi")):
        pattern = r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*'
        is_comment = lambda s: s.startswith(("#", '"""'))  # noqa: E731
    else:
        pattern = r"(?m)(?:^|(?<=\s))#[^\n]*"
        is_comment = lambda s: True  # noqa: E731
    comments, code, end = [], [], 0
    blank = lambda s: re.sub(r"[^\n]", " ", s)  # noqa: E731
    for match in re.finditer(pattern, text, re.S):
        between, token = text[end:match.start()], match.group()
        own = is_comment(token)
        comments += [blank(between), token if own else blank(token)]
        code += [between, blank(token) if own else token]
        end = match.end()
    return "".join([*comments, blank(text[end:])]), "".join([*code, text[end:]])


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).resolve().parents[2])
    files = tracked(root)
    documents, symbols = {}, set()
    for name in files:
        if name.endswith(".md") and "/seeds/" not in name:
            documents[name] = (Path(root) / name).read_text(encoding="utf-8")
        elif name.endswith(CODE) or "." not in Path(name).name:
            text = (Path(root) / name).read_text(encoding="utf-8", errors="replace")
            documents[name], code = split(name, text)
            symbols.update(re.findall(r"\b(?:napier|NAPIER)_\w+", code))
    stems = {name.rsplit(".", 1)[0].rsplit("/", 1)[-1] for name in files}
    ends = {"/".join(name.split("/")[i:]) for name in files for i in range(name.count("/") + 1)}

    def symbol_exists(word):
        prefix = word.rstrip("*")
        if word in symbols or word in stems:
            return True
        return prefix.endswith("_") and any(s.startswith(prefix) for s in symbols)

    checked = missing = 0
    for name, text in sorted(documents.items()):
        if name in HISTORY:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            # the command of a benchmark's record may be an earlier driver's
            line = re.sub(r"https?://\S+|^- Command: `[^`]*`", "", line)
            wanted = [(w, re.sub(r"^(?:\.{0,2}/)+", "", w) in ends) for w in PATH.findall(line) if not FOREIGN.match(w)
                      and not EXAMPLE.search(w)]
            wanted += [(w, symbol_exists(w)) for w in SYMBOL.findall(line) if not EXAMPLE.search(w)]
            for word, found in wanted:
                checked += 1
                if not found:
                    missing += 1
                    print(f"FAIL  {name}:{number}: no {word}")
    examples = "".join(example for name in files if re.fullmatch(r"docs/examples/\w+\.c", name) for example in re.findall(
        r"^static void \w+\(napier_context \*context\) \{\n.*?^\}", split(name, (Path(root) / name).read_text())[1], re.M | re.S))
    for header in sorted(name for name in files if re.fullmatch(r"include/napier/\w+\.h", name)):
        functions = re.findall(r"^NAPIER_API[^;(]*?\b(napier_\w+)\s*\(", (Path(root) / header).read_text(), re.M)
        for word in functions:
            checked += 1
            if not re.search(rf"\b{word}\(", examples):
                missing += 1
                print(f"FAIL  {header}: {word} has no example in docs/examples")
    print(f"{checked - missing} passed, {missing} failed")
    return 1 if missing else 0


sys.exit(main())
