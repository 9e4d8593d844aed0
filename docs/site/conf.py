"""Sphinx's settings. docs/site/build.py builds the site: it makes the folder of sources that these settings are for."""
import re
from pathlib import Path

import napier

project = "Napier"
author = "the authors of Napier"
copyright = author
version = release = napier.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["docs/site"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
suppress_warnings = ["myst.header", "toc.not_included", "ref.python"]
default_role = "code"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "exclude-members": "set_fit_request, set_partial_fit_request, set_score_request, set_transform_request, set_inverse_transform_request"}
napoleon_numpy_docstring = True
napoleon_use_param = False  # else words of a type that are also names, such as "ids", become links
nitpicky = True
nitpick_ignore_regex = [("c:identifier", r"(u?int\d*_t|size_t|FILE|MPI_\w+|cudaStream_t|DLManaged\w+|bool)"), ("py:.*", ".*"),
                        ("c:type", "napier_mpi")]

html_theme = "furo"
html_title = f"Napier {release}"
templates_path = ["templates"]  # a link to the other versions, where furo has a place for one
html_theme_options = {"source_directory": "docs/"}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_show_sphinx = False


def escape(app, what, name, obj, options, lines):
    """Docstrings are plain text for help(): a star, a bar or a name's last underscore is no markup."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[i] = re.sub(r"(`[^`]*`)|(\*|\||(?<=\w)_(?!\w))", lambda m: m[1] or "\\" + m[2], line)


def setup(app):
    app.connect("autodoc-process-docstring", escape, priority=100)  # before napoleon reads sections
