"""Every public name of the modules for Dask and Ray has an example in its docstring, and the examples run."""
from test_torch_docstrings import examples_of


def test_dask_and_ray():
    return examples_of("napier.dask", "napier.ray")
