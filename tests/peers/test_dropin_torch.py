"""PyTorch's OpInfo samples, with napier.torch in the place of its functions (dropin/opinfo.py)."""
import os
import sys

from support import Skip

# Cases that fail with Napier, and why: {(function, check, dtype, index): reason}.
KNOWN = {}


def run(match):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "dropin"))
    try:
        import opinfo
    except ImportError as error:
        raise Skip(f"OpInfo cannot be had: {error}") from None
    counts, unexpected, passing = opinfo.run(KNOWN.get, match)
    assert not unexpected, f"{len(unexpected)} cases are not listed: {unexpected[:5]}"
    assert counts, f"no cases of {match}"
    assert not passing, f"listed, but passing: {passing[:5]}"
    checks = {}
    for (_, check), (passed, total) in counts.items():
        before = checks.get(check, (0, 0))
        checks[check] = (before[0] + passed, before[1] + total)
    return ", ".join(f"{check} {passed} of {total}" for check, (passed, total) in checks.items())


def test_log_softmax():
    return run("log_softmax")


def test_softmax():
    return run("softmax")


def test_logsumexp():
    return run("logsumexp")


def test_scaled_dot_product_attention():
    return run("scaled_dot_product_attention")
