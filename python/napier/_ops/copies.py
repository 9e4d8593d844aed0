"""Functions of the extension along several axes, of all elements or with a mask: by copies in which their elements lie together."""

import numpy as np

from .convert import as_array, as_host, axes_of, given_by, namespace_of, transposed
from .device import contiguous, empty_like, is_elsewhere, stays
from .masked import hidden


def call_with_copies(name, inputs, arguments):
    """A function of the extension with a mask, along several axes, or of all elements of arrays that are no single run: by copies in which
    they lie together. The first `inputs` of the arguments are such arrays."""
    from .. import _napier

    first = next(iter(arguments.values()))
    space = namespace_of(first)
    if space is not None and not is_elsewhere(first):
        made = call_with_copies(name, inputs, {key: as_host(x) if key != "out" else x for key, x in arguments.items()})
        return made if "out" in arguments else given_by(made, space)
    if "mask" in arguments or "causal" in arguments:
        x, mask, causal = arguments.pop("x"), arguments.pop("mask", None), arguments.pop("causal", False)
        return getattr(_napier, name)(hidden(x, mask, causal), **arguments)
    if "axis" in arguments:
        return _over_axes(getattr(_napier, name), inputs, arguments)
    arrays = {key: _row_major(arguments.pop(key)) for key in list(arguments)[:inputs]}
    out = arguments.pop("out", None)
    if out is None:
        return getattr(_napier, name)(**arrays, **arguments, axis=None)
    if hasattr(out, "contiguous"):
        out.detach().copy_(getattr(_napier, name)(**arrays, **arguments, axis=None, out=out.detach().clone().contiguous()))
    else:
        place = out if is_elsewhere(out) else np.asarray(out)
        place[...] = getattr(_napier, name)(**arrays, **arguments, axis=None, out=_empty_like(place, tuple(place.shape)))
    return out


def _empty_like(x, shape):
    return empty_like(x, shape) if is_elsewhere(x) else np.empty(shape, x.dtype)


def _over_axes(function, inputs, arguments):
    """The function with these axes joined into the last one. A tensor keeps its graph, so that C still refuses it."""
    axis, out = arguments.pop("axis"), arguments.pop("out", None)
    arrays = {}
    for key in list(arguments)[:inputs]:
        x = arguments.pop(key)
        if isinstance(x, np.ma.MaskedArray):
            raise TypeError(f"{key}: masked arrays are not supported (use .filled())")
        arrays[key] = x if hasattr(x, "permute") or stays(x, key) else as_array(x, key)
    shape = tuple(next(iter(arrays.values())).shape)
    for key, x in [*arrays.items(), *([("out", out)] if out is not None else [])]:
        if tuple(x.shape) != shape:
            raise ValueError(f"{key}: its shape is not that of {next(iter(arrays))}")
    axes = axes_of(axis, len(shape)) if shape else []
    order = [i for i in range(len(shape)) if i not in axes] + axes
    lead = tuple(shape[i] for i in order[: len(shape) - len(axes)])
    length = int(np.prod([shape[i] for i in axes], dtype=np.int64))

    def row(x):
        return transposed(x, order).reshape((*lead, length)) if shape else x.reshape((1,))

    def back(y):
        return transposed(y.reshape([shape[i] for i in order]), np.argsort(order).tolist()) if shape else y.reshape(())

    rows = {key: row(x) for key, x in arrays.items()}
    if out is None:
        return back(function(**rows, **arguments, axis=-1))
    if hasattr(out, "permute"):
        out.detach().copy_(back(function(**rows, **arguments, axis=-1, out=row(out.detach()).clone().contiguous())))
    else:
        out[...] = back(function(**rows, **arguments, axis=-1, out=_empty_like(out, (*lead, length))))
    return out


def _row_major(x):
    if hasattr(x, "contiguous"):
        return x.detach().contiguous()
    return contiguous(x) if is_elsewhere(x) else np.ascontiguousarray(as_array(x))
