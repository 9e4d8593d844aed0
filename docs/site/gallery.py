"""Runs the scripts of docs/gallery and makes a page and a notebook of each.

A script has cells, which begin with `# %%` as editors and jupytext know them; one of text begins with `# %% [markdown]`. A page
shows each cell, what it prints, the value of its last line, and the pictures that plt.show() would show."""
import ast
import contextlib
import io
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def cells(text):
    """(is it text, its lines) of each cell."""
    for cell in re.split(r"^# %%", text, flags=re.M)[1:]:
        kind, _, body = cell.partition("\n")
        is_text = kind.strip() == "[markdown]"
        yield is_text, re.sub(r"^# ?", "", body, flags=re.M).strip() if is_text else body.strip()


def run(code, names):
    """What a cell prints, and its last line's value. Paths are from the project's root."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    return printed.getvalue() + (f"{value!r}\n" if value is not None else "")


def notebook(text):
    made = [{"cell_type": "markdown" if is_text else "code", "id": str(i), "metadata": {}, "source": body} for i, (is_text, body) in enumerate(cells(text))]
    for cell in made:
        cell.update({"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {})
    return json.dumps({"cells": made, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def page(script, folder):
    """Runs a script and writes its page; returns the page's title and its first picture."""
    import matplotlib.pyplot as plt

    plt.show = lambda: None
    lines, pictures, names = [], [], {}
    for is_text, body in cells(script.read_text()):
        lines.append(body if is_text else f"```python\n{body}\n```")
        printed = "" if is_text else run(body, names)
        if printed:
            lines.append(f"```text\n{printed}```")
        for number in plt.get_fignums():
            pictures.append(f"{script.stem}-{len(pictures) + 1}.png")
            plt.figure(number).savefig(folder / pictures[-1], dpi=120, bbox_inches="tight")
            lines.append(f"![picture](../{folder.name}/{pictures[-1]})")
        plt.close("all")
    (folder / f"{script.stem}.ipynb").write_text(notebook(script.read_text()))
    lines.append(f"[The script]({script.name}), the {{download}}`notebook <{script.stem}.ipynb>`.")
    (folder / f"{script.stem}.md").write_text("\n\n".join(lines) + "\n")
    return lines[0].splitlines()[0].lstrip("# "), pictures[0]


def write_pages(folder):
    """A page of each script in a folder of the site's sources, and the gallery of all."""
    import matplotlib

    matplotlib.use("Agg")
    cards = []
    for script in sorted(folder.glob("*.py")):
        title, picture = page(script, folder)
        cards.append(f":::{{grid-item-card}} {title}\n:link: {script.stem}\n:link-type: doc\n:img-bottom: {picture}\n:::\n")
    names = "\n".join(script.stem for script in sorted(folder.glob("*.py")))
    (folder / "README.md").write_text("# Gallery\n\nEach page is a script that ran when this site was made.\n\n::::{grid} 1 2 2 2\n:gutter: 2\n\n"
                                      + "\n".join(cards) + f"::::\n\n```{{toctree}}\n:hidden:\n{names}\n```\n")
