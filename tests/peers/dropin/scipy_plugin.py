"""A plug-in of pytest that puts Napier in the place of scipy.special.logsumexp, softmax and log_softmax: SciPy's own tests,
which come with its wheel, then test Napier. test_dropin_scipy.py runs them.
"""
import scipy.special
from scipy._lib import _array_api

import napier


def logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False):
    return napier.logsumexp(a, axis, b, keepdims, return_sign)


def softmax(x, axis=None):
    return napier.softmax(x, axis)


def log_softmax(x, axis=None):
    return napier.log_softmax(x, axis)


def replace(ours):
    """SciPy looks up by the function what array libraries it is to be tested with."""
    name = ours.__name__
    _array_api.xp_capabilities_table[ours] = _array_api.xp_capabilities_table[getattr(scipy.special, name)]
    setattr(scipy.special, name, ours)


for function in (logsumexp, softmax, log_softmax):
    replace(function)
