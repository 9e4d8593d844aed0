"""Every public name has an example in its docstring, and the examples run: modules for PyTorch, transformers, TRL and lm-eval."""
import os
import pathlib
import sys
import tempfile

from support import ROOT

sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import docstrings  # noqa: E402


def examples_of(*modules):
    """Looks at these modules, in a folder with the models that examples load."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        docstrings.models(pathlib.Path(folder))
        os.chdir(folder)
        try:
            count = sum(docstrings.check(name) for name in modules)
        finally:
            os.chdir(here)
    return f"{count} lines of examples"


def test_pytorch():
    return examples_of("napier.torch", "napier.torch.data_parallel", "napier.torch.distributed", "napier.umap")


def test_transformers_and_trl():
    return examples_of("napier", "napier.hf", "napier.trl", "napier.lm_eval")
