"""Makes a page of each public header: its comments and declarations in the header's order, and beside each function an example
that calls it (docs/examples). The headers carry plain comments, which Doxygen would not read.

A comment is plain text. As in Markdown, lines that are indented by four spaces are shown as they are."""
import re
from pathlib import Path

SECTION = re.compile(r"-{3,} *(.*?) *-{3,}")
FUNCTION = re.compile(r"(?:NAPIER_(?:MPI_)?API|static inline) +([^{]*?\b(napier_\w+)\([^{]*?\))\s*[;{]", re.S)
NAMES = [("macro", r"^#define (\w+)"), ("struct", r"^(?:typedef )?struct (napier_\w+) \{"), ("enum", r"^typedef enum (napier_\w+) \{"),
         ("type", r"^typedef \w+ (napier_\w+)\("), ("type", r"\(\*(napier_\w+)\)"), ("type", r"(\w+);$")]
SPECIAL = re.compile(r"\b(napier_\w+)(?![\w*/.])|`(\w[^`]*)`|[\\*`|_<>]")
EXAMPLE = re.compile(r"^/\* ((?:[^*]|\*(?!/))*) \*/\nstatic void \w+\([^;{]*\) \{.*?^\}", re.S | re.M)


def blocks(source):
    """The comments and declarations of a header: ("comment", text) and ("code", text)."""
    lines = iter(source.split("\n"))
    for line in lines:
        if line.startswith("/*"):
            while not line.endswith("*/"):
                line += "\n" + next(lines)
            yield "comment", line
        elif line.startswith(("#define NAPIER_", "typedef", "struct", "static inline", "NAPIER_")):
            while line.endswith("\\") or not line.startswith("#") and not complete(line):
                line += "\n" + next(lines)
            if not re.match(r"#define NAPIER_(\w+_)?(H|API|DEPRECATED\(text\))( |$)|static inline NAPIER_DEPRECATED", line):
                yield "code", line


def complete(declaration):
    plain = re.sub(r"/\*.*?\*/", "", declaration, flags=re.S).rstrip()
    return plain.count("{") == plain.count("}") and plain.endswith((";", "}"))


def lines_of(comment):
    return [re.sub(r"^ \* ?| ", "", line, count=1).rstrip() if line[:1] == " " else line for line in comment[2:-2].split("\n")]


def as_text(match):
    """A name of the API as a link, a word in backquotes as code, another special character as itself."""
    name, word = match.groups()
    return f":c:type:`{name}`\\ " if name else f"``{word}``" if word else "\\" + match[0]


def prose(lines):
    """Plain text as reStructuredText."""
    result, margin = [], None  # what is put before the lines of a block that is shown as it is; None: outside of one
    for line, following in zip(lines, [*lines[1:], ""]):
        head = "   " in line.strip() and following.startswith("    ")  # of a table
        if margin is None and (head or line.startswith("    ")):
            margin = "    " if head and not line.startswith("    ") else ""
            result += ["", ".. code-block:: none", ""]
        elif margin is not None and line and not line.startswith("    "):
            margin = None
            result.append("")
        result.append(SPECIAL.sub(as_text, line.strip()) if margin is None else margin + line if line else "")
    return "\n".join(result).strip("\n")


def directive(name, argument, body, *options):
    inner = "\n".join([*options, "", body])
    return f".. {name}:: {argument}\n" + "\n".join("   " + line if line else "" for line in inner.split("\n")) + "\n"


def heading(text, mark):
    return f"{text}\n{mark * len(text)}\n"


def documented(code, comment, examples):
    """A declaration, its comment and an example as a directive of Sphinx's domain for C."""
    function = FUNCTION.match(code)
    if function:
        example = next((found[0] for found in examples if re.search(rf"\b{function[2]}\(", found[0])), None)
        shown = directive("dropdown", "Example", directive("code-block", "c", example)) if example else ""
        return directive("c:function", " ".join(function[1].split()), prose(comment) + "\n\n" + shown)
    kind, name = next((kind, found[1]) for kind, pattern in NAMES if (found := re.search(pattern, code)))
    return directive(f"c:{kind}", name, prose(comment) + "\n\n" + directive("code-block", "c", code))


def page(header, examples):
    """A header's page as reStructuredText."""
    name = header.as_posix().split("include/")[1]
    result, above, first = [heading(name, "="), f"``#include <{name}>``\n"], [], True
    for kind, text in blocks(header.read_text()):
        if kind == "code":
            result.append(documented(text, above, examples))
            above = []
            continue
        lines = lines_of(text)
        title = SECTION.match(lines[0])
        if first:
            lines[0] = re.sub(r"^\S+ - ", "", lines[0])
            result.append(prose(lines))
        elif title:
            result += [heading(title[1], "-"), prose(lines[1:])]
        else:
            above = lines
        first = False
    return "\n\n".join(result)


def write_pages(root):
    """Writes a page of each header below root/include into root/c, and an index of them."""
    files = sorted((root / "docs" / "examples").glob("*.c"))
    target, names = root / "c", []
    target.mkdir()
    for header in sorted((root / "include" / "napier").rglob("*.h")):
        own_first = sorted(files, key=lambda file: file.stem != header.stem)
        examples = [found for file in own_first for found in EXAMPLE.finditer(file.read_text())]
        names.append(header.relative_to(root / "include" / "napier").as_posix().replace("/", "-").removesuffix(".h"))
        (target / f"{names[-1]}.rst").write_text(page(header, examples))
    (target / "index.rst").write_text(heading("C", "=") + "\n" + directive("toctree", "", "\n".join(names)))
