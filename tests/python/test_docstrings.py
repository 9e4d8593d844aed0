"""Every public name has an example in its docstring, and the examples run. (Modules that need more: tests/peers.)"""

import docstrings
import pytest

from napier import _napier

pytestmark = pytest.mark.skipif(not _napier._has_model, reason="this build has no model, which examples use")
MODULES = ["napier", "napier.rl", "napier.umap", "napier.umap.plot", "napier.umap.umap_", "napier.ray", "napier.lm_eval"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    docstrings.models(tmp_path)
    monkeypatch.chdir(tmp_path)
    docstrings.check(name)


def test_a_name_without_an_example_is_found(monkeypatch):
    monkeypatch.setattr("napier.rl.sample.__doc__", "Draws one token id.")
    assert list(docstrings.without("napier.rl")) == ["napier.rl.sample"]
