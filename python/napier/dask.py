"""softmax, log_softmax and logsumexp of Dask arrays, along any axis and with any chunks, and maps of them by UMAP.

Results are lazy Dask arrays. Their bits are those of the call on the whole array in memory, whatever the chunks, the workers
and the order of their work, so a block that a lost worker has to leave to another comes out the same.

Where a chunk has whole rows, each chunk is computed by itself. Long rows are reduced chunk by chunk to states
(napier.SoftmaxState), which merge exactly, in a tree. Rows of at most 16384 elements are brought together in one chunk
instead. See docs/scale.md.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Optional, Sequence

import dask
import dask.array as da
import numpy as np
from dask.graph_manipulation import bind

import napier
from ._ops.convert import axes_of, names_axis
from ._ops.logsumexp import _broadcast as _one_shape

__all__ = ["UMAP", "log_softmax", "logsumexp", "softmax"]

_SHORT = 1 << 14  # elements of a row that is brought together in one chunk
_RUN = 1 << 13  # elements in a chunk for which a state, of at most 4 KB at each end, is worth its bytes
_HELD = 1 << 28  # bytes of rows that softmax keeps between its two passes; it reads larger ones twice


@names_axis
def softmax(
    x: Any, axis: Optional[int] = -1, *, temperature: float = 1.0, masked_rows: Literal["nan", "zero"] = "nan", dtype: Any = None
) -> Any:
    """napier.softmax of a Dask array: a Dask array of the same shape.

    If rows go over several chunks and take more than 256 MB together, x is computed twice: once for the states of its rows,
    and once more when all of them are there. Otherwise it would have to be kept in between. `x.persist()` keeps it, in the
    workers' memory.

    Parameters
    ----------
    x : dask.array.Array
        Integers become float64.
    axis : int, or None: all elements, in row-major order
    temperature : float, > 0
    masked_rows : "nan" or "zero"
        What a row of only -inf gives.
    dtype : dtype of the result; default: that of x

    Examples
    --------
    >>> import dask.array as da, napier.dask
    >>> x = da.zeros((4, 100000), chunks=(2, 30000))  # rows over several chunks
    >>> float(napier.dask.softmax(x)[0, 0].compute())
    1e-05
    """
    return _elementwise(napier.softmax, "softmax", x, axis, temperature, masked_rows, dtype)


@names_axis
def log_softmax(
    x: Any, axis: Optional[int] = -1, *, temperature: float = 1.0, masked_rows: Literal["nan", "zero"] = "nan", dtype: Any = None
) -> Any:
    """napier.log_softmax of a Dask array; parameters and passes as those of softmax.

    Examples
    --------
    >>> import dask.array as da, napier.dask
    >>> x = da.zeros((4, 2), chunks=(1, 2))
    >>> napier.dask.log_softmax(x)[0].compute().round(4)
    array([-0.6931, -0.6931])
    """
    return _elementwise(napier.log_softmax, "log_softmax", x, axis, temperature, masked_rows, dtype)


@names_axis
def logsumexp(
    a: Any,
    axis: int | Sequence[int] | None = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
    *,
    temperature: float = 1.0,
    dtype: Any = None,
) -> Any:
    """napier.logsumexp of a Dask array, with SciPy's signature.

    Parameters
    ----------
    a : dask.array.Array
        Integers become float64.
    axis : int, tuple of int, or None
        The elements of several axes form one row, in row-major order.
    b : array that broadcasts with a, a number, or None
        Weights of any sign. They may have other chunks than a.
    keepdims : bool
    return_sign : bool
        Whether to return (log(abs(sum)), sign of the sum), two Dask arrays.
    temperature : float, > 0
    dtype : dtype of the result; default: that of a, or the common dtype of a and b

    Examples
    --------
    >>> import dask.array as da, napier.dask
    >>> x = da.from_array([[1000.0, 1001.0], [1002.0, 1003.0]], chunks=(1, 1))
    >>> napier.dask.logsumexp(x, axis=0).compute().round(4)
    array([1002.1269, 1003.1269])
    """
    a = _array(a, "a")
    if b is not None:
        a, b = _broadcast(a, b)
    axes = axes_of(axis, a.ndim)
    options = {"temperature": temperature, "dtype": dtype}
    one = np.ones((1,) * a.ndim, a.dtype)  # the errors and the dtype of a call in memory
    found = napier.logsumexp(one, axis=tuple(axes), b=_one_of(b), **options).dtype
    if found.kind == "c":
        raise TypeError("a: complex numbers are not supported in Dask arrays")
    if _is_whole(a, axes):
        both = _logsumexp_of_blocks(a, b, axes, return_sign, options, found)
    else:
        both = _logsumexp_of_states(a, b, axes, return_sign, temperature, found)
    parts = [both[..., i] for i in range(2)] if return_sign else [both]
    results = tuple(part if keepdims else part.squeeze(tuple(axes)) for part in parts)
    return results if return_sign else results[0]


# ---- Arguments ------------------------------------------------------------------------------------------------------


def _array(x, name):
    if not isinstance(x, da.Array):
        raise TypeError(
            f"{name}: expected a Dask array, got {type(x).__name__}; napier.{{softmax, log_softmax, logsumexp}} take arrays in memory"
        )
    if any(math.isnan(n) for n in x.shape):
        raise ValueError(f"{name}: its chunks have unknown sizes; call {name}.compute_chunk_sizes() first")
    if any(0 in sizes and sum(sizes) for sizes in x.chunks):  # chunks without elements, as filters leave them
        x = x.rechunk(tuple(tuple(n for n in sizes if n) or (0,) for sizes in x.chunks))
    if x.dtype.kind in "biu":
        return x.astype(np.float64)
    return x


def _broadcast(a, b):
    """Both in one shape, in the same chunks; a number stays one."""
    if isinstance(b, (bool, int, float)):
        return a, b
    b = b if isinstance(b, da.Array) else da.from_array(np.asarray(b))
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ValueError(f"b: shape {b.shape} does not broadcast with that of a, {a.shape}") from None
    a = a if a.shape == shape else da.broadcast_to(a, shape)
    return a, da.broadcast_to(b, shape)


def _one_of(b):
    return np.ones((1,) * b.ndim, b.dtype) if isinstance(b, da.Array) else b


def _meta(x, dtype):
    return np.empty((0,) * x.ndim, dtype)


# ---- Chunks ---------------------------------------------------------------------------------------------------------


def _rechunk(x, sizes):
    """x with these sizes of chunks along some axes. Chunks that would become too large become smaller along the others."""
    sizes = {i: n for i, n in sizes.items() if max(x.chunks[i], default=0) < n}
    if not sizes:
        return x
    most = [max(c, default=0) for c in x.chunks]
    now = math.prod(most) * x.itemsize
    limit = max(now, 1 << 27)
    if math.prod(sizes.get(i, n) for i, n in enumerate(most)) * x.itemsize <= limit:
        return x.rechunk(sizes)
    return x.rechunk({i: sizes.get(i, "auto") for i in range(x.ndim)}, block_size_limit=limit)


def _is_whole(x, axes):
    """Is a row to lie in one chunk?"""
    return math.prod(x.shape[i] for i in axes) <= _SHORT or x.size == 0 or all(len(x.chunks[i]) == 1 for i in axes)


def _whole(x, axes):
    return _rechunk(x, {i: x.shape[i] for i in axes})


# ---- Whole rows in each chunk ---------------------------------------------------------------------------------------


def _logsumexp_block(x, b=None, *, axes, return_sign, options):
    result = napier.logsumexp(x, axis=axes, b=b, keepdims=True, return_sign=return_sign, **options)
    return np.stack(result, axis=-1) if return_sign else np.asarray(result)


def _logsumexp_of_blocks(a, b, axes, return_sign, options, dtype):
    a = _whole(a, axes)
    arrays = [a]
    if isinstance(b, da.Array):
        arrays.append(b.rechunk(a.chunks))
        b = None
    chunks = tuple((1,) if i in axes else c for i, c in enumerate(a.chunks)) + (((2,),) if return_sign else ())
    return da.map_blocks(
        _logsumexp_block,
        *arrays,
        axes=tuple(axes),
        return_sign=return_sign,
        options=options,
        chunks=chunks,
        dtype=dtype,
        new_axis=a.ndim if return_sign else None,
        meta=np.empty((0,) * len(chunks), dtype),
        **({} if b is None else {"b": b}),
    )


# ---- Rows in several chunks -----------------------------------------------------------------------------------------
#
# An array of states: [kept..., joined...]. The joined axes form the row. Along them it has one state for each run, the
# elements of a chunk that are consecutive in their row.


def _runs(x, kept):
    """x with chunks of long runs, and the axis along which these lie side by side: those behind it are whole."""
    sizes, run, axis = {}, 1, x.ndim
    while axis > kept and (axis == x.ndim or sizes[axis] == x.shape[axis]):
        axis -= 1
        sizes[axis] = min(x.shape[axis], max(max(x.chunks[axis]), -(-_RUN // run)))
        run *= sizes[axis]
    return _rechunk(x, sizes), axis


def _states_of_block(block, weights=None, *, kept, split, row_shape, options, block_info=None):
    start = [begin for begin, _ in block_info[0]["array-location"]]
    lead, rest = block.shape[:split], (0,) * (block.ndim - split)
    states = np.empty(lead + (1,) * len(rest), object)
    if weights is not None:
        block, weights = _one_shape(block, weights)
    for index in np.ndindex(lead):
        place = [s + i for s, i in zip(start[kept:split], index[kept:])] + start[split:]
        state = napier.SoftmaxState(first_index=int(np.ravel_multi_index(place, row_shape)), **options)
        parts = (block[index], weights[index]) if weights is not None else (block[index],)
        states[index + rest] = state.update(*(part.reshape(-1) for part in parts))
    return states


def _merge_along(states, axis, keepdims, options, **_):
    """Merges neighbours in their order. The states that are given stay as they are: Dask may use them again."""
    lines = np.moveaxis(states, axis, -1)
    merged = np.empty(lines.shape[:-1], object)
    for index in np.ndindex(merged.shape):
        line = lines[index]
        state = napier.SoftmaxState(first_index=line[0].first_index, **options)
        for part in line:
            state.merge(part)
        merged[index] = state
    return np.expand_dims(merged, axis)


def _states(x, kept, options, b=None):
    """The states of whole rows, [kept..., 1...]; b: weights in the shape of x, or a number."""
    x, split = _runs(x, kept)
    weights = [] if b is None else [b.rechunk(x.chunks) if isinstance(b, da.Array) else b]
    chunks = x.chunks[:split] + ((1,) * len(x.chunks[split]),) + ((1,),) * (x.ndim - split - 1)
    states = da.map_blocks(
        _states_of_block,
        x,
        *weights,
        kept=kept,
        split=split,
        row_shape=x.shape[kept:],
        options=options,
        chunks=chunks,
        dtype=object,
        meta=_meta(x, object),
    )

    def merge(block, axis, keepdims, **_):
        return _merge_along(block, axis[0] if isinstance(axis, tuple) else axis, keepdims, options)

    for axis in range(split, kept - 1, -1):
        if states.shape[axis] > 1:
            states = da.reduction(states, chunk=merge, aggregate=merge, axis=axis, keepdims=True, dtype=object, meta=_meta(states, object))
    return x, states


def _finish_block(states, compute, found, return_sign):
    """[..., 2] with signs."""
    finished = np.array([state.finish(return_sign=return_sign) for state in states.flat]).astype(compute)
    finished = finished.reshape(states.shape + (2,) * return_sign)
    # One element is its own logsumexp, rounded once to the dtype.
    return np.asarray(napier.logsumexp(finished[..., None], axis=-1, dtype=found))


def _options_of(compute, temperature, **more):
    return {"dtype": compute, "temperature": temperature, **more}


def _compute_dtype(*dtypes):
    return "float64" if np.dtype(np.float64) in dtypes else "float32"


def _logsumexp_of_states(a, b, axes, return_sign, temperature, dtype):
    one = np.ones(1, a.dtype)
    compute = _compute_dtype(dtype, *(x.dtype for x in ([one] if b is None else _one_shape(one, _one_of(b)))))
    kept = [i for i in range(a.ndim) if i not in axes]
    if isinstance(b, da.Array):
        b = b.transpose(kept + axes)
    _, states = _states(a.transpose(kept + axes), len(kept), _options_of(compute, temperature, weighted=b is not None), b)
    chunks = states.chunks + (((2,),) if return_sign else ())
    result = da.map_blocks(
        _finish_block,
        states,
        compute=compute,
        found=dtype,
        return_sign=return_sign,
        chunks=chunks,
        dtype=dtype,
        new_axis=a.ndim if return_sign else None,
        meta=np.empty((0,) * len(chunks), dtype),
    )
    back = np.argsort(kept + axes).tolist()
    return result.transpose(back + [a.ndim] * return_sign)


# ---- softmax --------------------------------------------------------------------------------------------------------


def _close_block(states, compute):
    """Bytes in place of states. Filled up with -inf, which changes no result, a row has no open tile, and 200 bytes."""
    closed = np.empty(states.shape, object)
    for index, state in np.ndenumerate(states):
        state = napier.SoftmaxState.from_bytes(state.to_bytes())
        closed[index] = state.update(np.full(-state.count % 1024, -np.inf, compute)).to_bytes()
    return closed


def _apply_block(block, states, kept, kind, found):
    result = np.empty(block.shape, found)
    for index in np.ndindex(block.shape[:kept]):
        state = napier.SoftmaxState.from_bytes(states[index].item())
        state.finish()
        row = block[index]
        result[index] = state.apply(row.reshape(-1), kind, dtype=found).reshape(row.shape)
    return result


def _map_block(block, function, axis, options):
    return function(block, axis, **options)


def _elementwise(function, kind, x, axis, temperature, masked_rows, dtype):
    x = _array(x, "x")
    options = {"temperature": temperature, "masked_rows": masked_rows, "dtype": dtype}
    found = function(np.ones((1,) * x.ndim, x.dtype), axis, **options).dtype
    axes = axes_of(axis, x.ndim)
    if _is_whole(x, axes):
        x = _whole(x, axes)
        return da.map_blocks(_map_block, x, function=function, axis=axis, options=options, dtype=found, meta=_meta(x, found))
    kept = [i for i in range(x.ndim) if i not in axes]
    compute = _compute_dtype(x.dtype, found)
    rows, states = _states(x.transpose(kept + axes), len(kept), _options_of(compute, temperature, masked_rows=masked_rows))
    states = da.map_blocks(_close_block, states, compute=compute, dtype=object, meta=_meta(states, object))
    together = math.prod([max(c) for c in rows.chunks[: len(kept)]] + list(rows.shape[len(kept) :]))
    if together * rows.itemsize > _HELD:
        rows = bind(rows, states)  # a copy of the tasks that make x, which wait for the states
    result = da.map_blocks(_apply_block, rows, states, kept=len(kept), kind=kind, found=found, dtype=found, meta=_meta(x, found))
    return result.transpose(np.argsort(kept + axes).tolist())


# ---- UMAP -----------------------------------------------------------------------------------------------------------


def _transform_block(block, model):
    return model.transform(block)


class UMAP:
    """A map of the rows of a Dask array: fitted to a sample of them, and the others are placed on it chunk by chunk.

    The sample depends on the seed and the number of rows only, and the place of a row on the map and the row only. So the
    chunks change nothing.

    Parameters
    ----------
    sample_size : int
        The most rows to fit. They, and the map of them, are in the memory of this process.
    sample_seed : int
    **parameters : those of napier.UMAP

    Attributes
    ----------
    estimator_ : napier.UMAP, fitted to the sample
    sample_ : the indices of the sample's rows, in their order

    Examples
    --------
    >>> import dask.array as da, napier.dask
    >>> x = da.random.default_rng(0).standard_normal((3000, 5), chunks=(500, 5))
    >>> model = napier.dask.UMAP(sample_size=500, n_epochs=20).fit(x)
    >>> model.transform(x).shape
    (3000, 2)
    """

    estimator_: Any
    sample_: Any

    def __init__(self, *, sample_size: int = 20000, sample_seed: int = 0, **parameters: Any) -> None:
        if isinstance(sample_size, bool) or not isinstance(sample_size, (int, np.integer)) or sample_size < 2:
            raise ValueError(f"sample_size: {sample_size!r} is not an integer from 2 on")
        self.sample_size = int(sample_size)
        self.sample_seed = sample_seed
        self.parameters = parameters
        napier.UMAP(**parameters)  # refuses what it does not know

    def fit(self, X: Any) -> UMAP:
        """Computes the rows of the sample, and fits the map to them. Returns self.

        Examples
        --------
        >>> import dask.array as da, napier.dask
        >>> x = da.random.default_rng(0).standard_normal((3000, 5), chunks=(500, 5))
        >>> model = napier.dask.UMAP(sample_size=500, n_epochs=20).fit(x)
        >>> len(model.sample_)
        500
        """
        X = self._rows(X)
        size = min(self.sample_size, X.shape[0])
        drawn = np.random.default_rng(self.sample_seed).choice(X.shape[0], size, replace=False, shuffle=False)
        self.sample_ = np.sort(drawn)
        self.estimator_ = napier.UMAP(**self.parameters).fit(X[self.sample_].compute())
        return self

    def transform(self, X: Any) -> Any:
        """The places of the rows of X, a lazy float32 array [rows, n_components] with the chunks of X.

        Examples
        --------
        >>> import dask.array as da, napier.dask
        >>> x = da.random.default_rng(0).standard_normal((3000, 5), chunks=(500, 5))
        >>> model = napier.dask.UMAP(sample_size=500, n_epochs=20).fit(x)
        >>> model.transform(x[:1000]).compute().shape
        (1000, 2)
        """
        if not hasattr(self, "estimator_"):
            raise ValueError("transform: this UMAP is not fitted; call fit first")
        X = _whole(self._rows(X), [1])
        width = self.estimator_.embedding_.shape[1]
        return da.map_blocks(
            _transform_block,
            X,
            model=dask.delayed(self.estimator_, pure=True),
            dtype=np.float32,
            chunks=(X.chunks[0], (width,)),
            meta=np.empty((0, width), np.float32),
        )

    def fit_transform(self, X: Any) -> Any:
        """fit(X).transform(X).

        Examples
        --------
        >>> import dask.array as da, napier.dask
        >>> x = da.random.default_rng(0).standard_normal((3000, 5), chunks=(500, 5))
        >>> napier.dask.UMAP(sample_size=500, n_epochs=20).fit_transform(x).chunks[0]
        (500, 500, 500, 500, 500, 500)
        """
        return self.fit(X).transform(X)

    @staticmethod
    def _rows(X):
        X = _array(X, "X")
        if X.ndim != 2:
            raise ValueError(f"X: expected rows and columns, got {X.ndim} dimensions")
        return X
