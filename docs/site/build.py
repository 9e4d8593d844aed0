"""Builds the site: python docs/site/build.py OUT. `make site` installs what it needs first.

OUT/html/1.0 gets the pages of version 1.0, OUT/html/latest leads to it, and OUT/html/index.html lists all versions that are there:
folders of other versions stay. The pages are the guides in docs/, the gallery, whose scripts run now, a page of each public header
and of each Python module. They are gathered in OUT/source, where links between files of the project lead to the same places as in the project. A warning of Sphinx, or a link to nothing, is an
error. Links to other sites are not followed."""
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import c_api
import gallery

ROOT = Path(__file__).resolve().parents[2]
SHOWN = ["README.md", "NEWS.md", "CONTRIBUTING.md", "LICENSE", "bench", "cli", "data", "docs", "examples", "include", "mpi", "src", "tests", "tools"]
MODULES = ["napier", "napier.umap", "napier.umap.plot", "napier.rl", "napier.torch", "napier.torch.data_parallel", "napier.torch.distributed", "napier.hf", "napier.trl",
           "napier.dask", "napier.ray", "napier.lm_eval"]
OWN = {"napier.lm_eval": ""}  # what it imports is not its own
ORDER = {"napier": "   :member-order: bysource\n"}  # that of __all__


LINK = re.compile(r"\]\(([\w./-]+)\)")


def list_folders(source):
    """A page for each folder that a page links to and that has no README.md: the names of its files, with links."""
    for path in list(source.rglob("*.md")):
        def to_page(match):
            folder = path.parent / match[1]
            if not folder.is_dir():
                return match[0]
            if not (folder / "README.md").exists():
                files = sorted(file.name for file in folder.iterdir() if file.is_file())
                (folder / "README.md").write_text(f"# {match[1].replace('../', '').rstrip('/')}\n\n" + "".join(f"- [{f}]({f})\n" for f in files))
            return f"]({match[1].rstrip('/')}/README.md)"
        path.write_text(LINK.sub(to_page, path.read_text()))


def trim_examples(source):
    """doctest asks for an empty line at the end of an example, and Sphinx would show it."""
    for path in source.rglob("*.md"):
        path.write_text(re.sub(r"\n\n```$", "\n```", path.read_text(), flags=re.M))


def gather(source):
    for name in SHOWN:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, source / name)
    shutil.copy(ROOT / "docs" / "site" / "index.md", source)
    shutil.rmtree(source / "bench" / "findings")  # docs/benchmarks.md and docs/rl-benchmarks.md include these, with links from there
    manual = source / "docs" / "napier.1.md"  # begins with fields that only the man page's maker reads
    manual.write_text("# The program: napier(1)\n\n" + re.sub("^#", "##", "# NAME" + manual.read_text().split("# NAME")[1], flags=re.M))
    gallery.write_pages(source / "docs" / "gallery")
    list_folders(source)
    trim_examples(source)
    c_api.write_pages(source)
    pages = source / "python"
    pages.mkdir()
    for module in MODULES:
        (pages / f"{module}.rst").write_text(f"{c_api.heading(module, '=')}\n.. automodule:: {module}\n{OWN.get(module, '   :imported-members:')}\n{ORDER.get(module, '')}")
    (pages / "index.rst").write_text(c_api.heading("Python", "=") + "\n" + c_api.directive("toctree", "", "\n".join(MODULES)))


class Page(HTMLParser):
    """The links of a page, and the places in it that a link can lead to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.places = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


def dead_links(site):
    pages = {path.resolve(): Page(path.read_text()) for path in site.rglob("*.html")}
    for path, page in sorted(pages.items()):
        for link in sorted(page.links):
            if link.split(":")[0] in ("http", "https", "data", "mailto"):
                continue
            file, _, place = unquote(link).partition("#")
            target = (path.parent / file.partition("?")[0]).resolve() if file else path
            if not target.exists() or place and target in pages and place not in pages[target].places:
                yield f"{path.relative_to(site.resolve())}: {link}"


def list_versions(root):
    """The first page, and `latest`, a link to the newest version."""
    versions = sorted((p.name for p in root.iterdir() if re.fullmatch(r"\d+\.\d+", p.name)), key=lambda v: [int(n) for n in v.split(".")], reverse=True)
    (root / "latest").unlink(missing_ok=True)
    (root / "latest").symlink_to(versions[0])
    items = "".join(f'<li><a href="{v}/index.html">Napier {v}</a></li>' for v in versions)
    (root / "index.html").write_text(f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>Napier</title>\n<h1>Napier</h1>\n'
                                     f'<p><a href="latest/index.html">The newest version</a></p>\n<ul>{items}</ul></html>\n')


def main(out):
    import napier

    site = out / "html" / ".".join(napier.__version__.split(".")[:2])
    for folder in (out / "source", site):
        shutil.rmtree(folder, ignore_errors=True)
    site.mkdir(parents=True)
    (out / "source").mkdir()
    gather(out / "source")
    list_versions(out / "html")
    built = subprocess.run([sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "2", "-c", ROOT / "docs" / "site", out / "source", site])
    dead = list(dead_links(site))
    print(*(f"dead link: {link}" for link in dead), sep="\n", end="\n" if dead else "")
    if built.returncode == 0 and not dead:
        print(f"{len(list(site.rglob('*.html')))} pages, no warning, no dead link: {site / 'index.html'}")
    return built.returncode or bool(dead)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
