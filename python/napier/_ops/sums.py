"""Sums, exponentials and logarithms of arrays with Napier's bits, made of what C computes."""

import numpy as np

from .. import _napier


def dot_rows(a, b):
    """The sum of a * b over the last axis, of float32 or float64, in Napier's order. b is ignored where a is 0. softmax_backward
    subtracts this sum from the gradient of a further element with probability 1/2."""
    a = np.concatenate([a, np.full((*a.shape[:-1], 1), 0.5, a.dtype)], -1)
    b = np.concatenate([b, np.zeros((*b.shape[:-1], 1), b.dtype)], -1)
    return -2.0 * _napier.softmax_backward(a, b, -1)[..., -1]


def exp(x):
    """exp of float64, below 700. log_softmax_backward subtracts exp(x) times the sum of the gradients, which is -1 here."""
    rows = np.concatenate([x.reshape(-1), [-np.inf]])
    grad = np.zeros_like(rows)
    grad[-1] = -1.0
    return _napier.log_softmax_backward(rows, grad, -1)[:-1].reshape(x.shape)


def log(x):
    """log of float64 >= 0: the logsumexp of 0 with the weight x."""
    x = np.asarray(x, np.float64)
    return np.asarray(_napier._logsumexp_weighted(np.zeros((*x.shape, 1)), x[..., None], -1, False)[0])
