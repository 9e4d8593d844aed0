"""SciPy's own tests of logsumexp, softmax and log_softmax, with Napier's in their place (dropin/scipy_plugin.py)."""
import os
import re
import tempfile

from support import Skip, python

# Tests that fail with Napier, and why.
KNOWN = {}


def test_scipy_with_napier():
    try:
        import pytest  # noqa: F401
        import scipy.special.tests.test_logsumexp  # noqa: F401
    except ImportError as error:
        raise Skip(f"SciPy's tests cannot be had: {error}") from None
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dropin")
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as empty:
        done = python("-m", "pytest", "-q", "-rf", "--tb=no", "-p", "scipy_plugin", "-p", "no:cacheprovider", "-W", "ignore",
                      "--pyargs", "scipy.special.tests.test_logsumexp", cwd=empty, PYTHONPATH=path,
                      SCIPY_ARRAY_API='["numpy", "torch"]')
    failed = set(re.findall(r"^FAILED \S*::(\S+)", done.stdout, re.M))
    passed = int((re.findall(r"(\d+) passed", done.stdout) or ["0"])[0])
    assert passed > 700 and not re.search(r"\d+ errors?", done.stdout), done.stdout[-2000:] + done.stderr[-2000:]
    assert failed == set(KNOWN), f"not listed: {sorted(failed - set(KNOWN))}; listed, but passing: {sorted(set(KNOWN) - failed)}"
    return f"{passed} of {passed + len(failed)}"
