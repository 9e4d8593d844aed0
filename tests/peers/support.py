"""What tests of every set share: refusals, skips, and programs that are run."""
import os
import subprocess
import sys

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
