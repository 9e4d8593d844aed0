"""napier.show_config: what this build contains, and what it can use on this machine."""

import sys

from . import _napier

_ISAS = ("scalar", "neon", "avx2", "avx512")
_OPTIONAL = ("numpy", "scipy", "scikit-learn", "torch", "transformers", "trl", "matplotlib", "dask", "ray")


def _version(package):
    import importlib.metadata  # here, because it takes longer than all of `import napier`

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _config():
    return {
        "version": _napier.__version__,
        "numerics version": _napier.numerics_version,
        "python": sys.version.split()[0],
        "instruction sets": [isa for isa in _ISAS if _napier.isa_available(isa)],
        "chosen": _napier.get_isa(),
        "threads": _napier.get_num_threads(),
        "tokenizer and model": bool(_napier._has_model),
        "CUDA": bool(_napier._has_cuda),
        "packages": {package: _version(package) for package in _OPTIONAL},
    }


def show_config(mode="stdout"):
    """Prints what this build contains, the instruction sets and threads that it uses, and the versions of the packages that parts of
    napier need. Nothing is imported for it.

    Parameters
    ----------
    mode : 'stdout' prints; 'dicts' returns the same as a dictionary.

    Examples
    --------
    >>> import napier
    >>> napier.show_config("dicts")["numerics version"] == napier.numerics_version
    True
    """
    if mode not in ("stdout", "dicts"):
        raise ValueError(f"mode: {mode!r} is not 'stdout' or 'dicts'")
    config = _config()
    if mode == "dicts":
        return config
    for name, value in config.items():
        if isinstance(value, dict):
            value = ", ".join(f"{package} {version}" for package, version in value.items() if version)
        elif isinstance(value, list):
            value = " ".join(value)
        elif isinstance(value, bool):
            value = "built in" if value else "left out"
        print(f"{name:20}{value}")
    return None
