"""napier.dask against the calls in memory: the same bits for any axes, chunks, dtypes and workers, also when one dies."""
import itertools
import math
import os
import signal
import warnings
import zlib

import dask
import dask.array as da
import numpy as np

import napier
import napier.dask as nd
from support import ROOT, python, raises

dask.config.set(scheduler="threads", num_workers=4)


def same(lazy, wanted, what=""):
    assert isinstance(lazy, da.Array), type(lazy)
    found, wanted = np.asarray(lazy), np.asarray(wanted)
    assert lazy.dtype == found.dtype == wanted.dtype, (lazy.dtype, found.dtype, wanted.dtype, what)
    assert lazy.shape == found.shape == wanted.shape, (lazy.shape, found.shape, wanted.shape, what)
    assert found.tobytes() == wanted.tobytes(), what


def rows(shape, dtype=np.float32, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 6).astype(dtype)


# Chunks of an array of 3 x 40000: whole rows, parts of them, parts that share a tile of 1024, and parts that are brought together.
CHUNKS = [(3, 40000), (1, 10000), (2, 7777), (3, (1, 39999)), (2, (1023, 1, 1024, 37952)), (1, 500)]


def test_chunks_without_elements():
    x = rows((2, 40000))
    for chunks in ((1, (20000, 20000, 0)), ((0, 2), 15000), ((1, 0, 1), (0, 40000))):
        d = da.from_array(x, chunks=chunks)
        for axis in (0, 1, None):
            same(nd.logsumexp(d, axis=axis), napier.logsumexp(x, axis=axis), (chunks, axis))
        same(nd.softmax(d), napier.softmax(x), chunks)
        same(nd.log_softmax(d, 0), napier.log_softmax(x, 0), chunks)


def test_long_rows():
    x = rows((3, 40000))
    for chunks, axis in itertools.product(CHUNKS, (0, 1, None, (1, 0))):
        d = da.from_array(x, chunks=chunks)
        same(nd.logsumexp(d, axis=axis), napier.logsumexp(x, axis=axis), (chunks, axis))
        if not isinstance(axis, tuple):
            same(nd.softmax(d, axis), napier.softmax(x, axis), (chunks, axis))
            same(nd.log_softmax(d, axis), napier.log_softmax(x, axis), (chunks, axis))


def test_dtypes_and_temperature():
    x = rows((3, 40000))
    for given, wanted in itertools.product((np.float16, np.float32, np.float64), (None, np.float16, np.float64)):
        y = x.astype(given)
        d, options = da.from_array(y, chunks=(2, 9999)), {"temperature": 0.7, "dtype": wanted}
        same(nd.logsumexp(d, axis=1, **options), napier.logsumexp(y, axis=1, **options))
        same(nd.softmax(d, 1, **options), napier.softmax(y, 1, **options))
        same(nd.log_softmax(d, 1, **options), napier.log_softmax(y, 1, **options))
    whole = np.arange(40000).reshape(2, 20000) % 7
    same(nd.logsumexp(da.from_array(whole, chunks=(1, 3000)), axis=1), napier.logsumexp(whole, axis=1))


def test_special_rows():
    x = rows((6, 30000))
    x[0] = -np.inf
    x[1, 5] = np.nan
    x[2, 20000] = np.inf
    x[3, 100:] = -np.inf
    x[4] = -3e38
    d = da.from_array(x, chunks=(4, 9000))
    for masked in ("nan", "zero"):
        same(nd.softmax(d, masked_rows=masked), napier.softmax(x, masked_rows=masked))
        same(nd.log_softmax(d, masked_rows=masked), napier.log_softmax(x, masked_rows=masked))
    for found, wanted in zip(nd.logsumexp(d, axis=1, return_sign=True), napier.logsumexp(x, axis=1, return_sign=True)):
        same(found, wanted)


def test_several_axes():
    x = rows((5, 30, 7, 300), np.float64)
    for chunks in [(5, 30, 7, 300), (2, 7, 3, 100), (3, (1, 29), 7, (299, 1))]:
        d = da.from_array(x, chunks=chunks)
        for axis in [(0,), (3,), (0, 1), (2, 3), (3, 1), (2, 0, 3), (1, 2, 3), (3, 2, 1, 0), None]:
            same(nd.logsumexp(d, axis=axis), napier.logsumexp(x, axis=axis), (chunks, axis))
        same(nd.logsumexp(d, axis=(3, 1), keepdims=True), napier.logsumexp(x, axis=(3, 1), keepdims=True))
        for axis in (None, 1, -1):
            same(nd.softmax(d, axis), napier.softmax(x, axis), (chunks, axis))


def test_weights():
    x = rows((3, 40000))
    for b in (rows((3, 40000), seed=1), rows((3, 1), np.float64, seed=2), rows((2, 1, 40000), seed=3), np.arange(40000) - 5, -2, 0.5):
        for chunks, axis in itertools.product(CHUNKS[:5], (-1, None, (-1, -2))):
            d = da.from_array(x, chunks=chunks)
            w = da.from_array(b, chunks=1 if b.size < 9 else 999) if isinstance(b, np.ndarray) and b.ndim == 2 else b
            options = {"axis": axis, "b": b, "temperature": 0.9}
            wanted = napier.logsumexp(x, return_sign=True, keepdims=True, **options)
            options["b"] = w
            for found, want in zip(nd.logsumexp(d, return_sign=True, keepdims=True, **options), wanted):
                same(found, want, (chunks, axis))
            same(nd.logsumexp(d, **options), napier.logsumexp(x, **{**options, "b": b}), (chunks, axis))


def test_weights_of_every_sort():
    x = rows((6, 30000))
    x[0] = -np.inf
    x[1, 5], x[2, 20000] = np.nan, np.inf
    b = rows((6, 30000), seed=1)
    b[3] = np.where(np.arange(30000) % 2, 1, -1)
    x[3] = 2.0
    b[4], b[5, 7] = 0, np.inf
    for dtype, of_weights, wanted in itertools.product((np.float16, np.float32, np.float64), (np.float32, np.float64), (None, np.float64)):
        y, w = x.astype(dtype), b.astype(of_weights)
        d, e = da.from_array(y, chunks=(4, 9000)), da.from_array(w, chunks=(3, 11111))
        options = {"axis": 1, "return_sign": True, "dtype": wanted}
        for found, want in zip(nd.logsumexp(d, b=e, **options), napier.logsumexp(y, b=w, **options)):
            same(found, want)


def test_weights_are_not_brought_together():
    """A block is never larger than a chunk, so weighted rows need no memory for all of them."""
    largest, compute = [], nd._states_of_block

    def seen(block, weights, block_info=None, **more):
        largest.extend([block.nbytes, weights.nbytes])
        return compute(block, weights, block_info=block_info, **more)

    x, b = rows((2, 600000)), rows((2, 600000), seed=1)
    d, e = (da.from_array(array, chunks=(1, 100000)) for array in (x, b))
    nd._states_of_block = seen
    try:
        same(nd.logsumexp(d, axis=1, b=e), napier.logsumexp(x, axis=1, b=b))
    finally:
        nd._states_of_block = compute
    assert len(largest) == 24 and max(largest) == 400000, largest


def numbers(seed, shape):
    """Those of tests/peers/distributed_ranks.py and tests/mpi/ranks.c."""
    i = np.arange(math.prod(shape), dtype=np.uint32)
    with np.errstate(over="ignore"):
        mixed = (i + np.uint32(1)) * np.uint32(2654435761) ^ np.uint32((seed + 1) * 2246822519 % 2**32)
        mixed = mixed * np.uint32(3266489917) >> np.uint32(20)
    return (mixed.astype(np.float32) / 256 - 8).reshape(shape)


def test_the_golden_table():
    """The lines of the table of PyTorch's and MPI's ranks, from chunks with their boundaries, as states."""
    cols = 5003
    with open(os.path.join(ROOT, "tests", "bits", "v1", "golden_shards.txt"), encoding="ascii") as lines:
        golden = {name: crc for name, dtype, crc in map(str.split, lines) if dtype == "f32"}
    x, g = numbers(1, (5, cols)), numbers(2, (5, cols))
    short, run, nd._SHORT, nd._RUN = nd._SHORT, nd._RUN, 0, 1
    try:
        for ranks in (1, 2, 3, 4, 8):
            even = [cols * (r + 1) // ranks - cols * r // ranks for r in range(ranks)]
            tiny = [1] * (ranks - 1) + [cols - ranks + 1]
            anywhere = np.diff([*[0, 1, 1500, 1501, 2048, 3333, 5000, 5002][:ranks], cols]).tolist()
            for sizes in (even, tiny, anywhere):
                d, e = (da.from_array(array, chunks=((2, 3), tuple(sizes))) for array in (x, g))
                lse, sign = nd.logsumexp(d, axis=1, b=e, return_sign=True, temperature=0.75)
                made = {"softmax": nd.softmax(d, temperature=0.75), "log_softmax": nd.log_softmax(d, temperature=0.75),
                        "logsumexp": nd.logsumexp(d, axis=1, temperature=0.75), "weighted_lse": lse, "weighted_sign": sign,
                        "weighted_without_sign": nd.logsumexp(d, axis=1, b=e, temperature=0.75)}
                for (name, _), found in zip(made.items(), dask.compute(*made.values(), num_workers=ranks)):
                    assert f"{zlib.crc32(np.ascontiguousarray(found).tobytes()):08x}" == golden[name], (name, sizes)
    finally:
        nd._SHORT, nd._RUN = short, run


def test_what_is_larger_than_what_is_kept():
    """softmax then computes its input twice, the second time once the states are there."""
    runs = []

    def source(block):
        runs.append(block.size)
        return block * np.float32(1)

    x = rows((3, 40000))
    d = da.from_array(x, chunks=(2, 9999)).map_blocks(source, dtype=np.float32, meta=np.empty((0, 0), np.float32))
    same(nd.softmax(d), napier.softmax(x))
    assert sum(runs) == x.size
    held, nd._HELD = nd._HELD, 1000
    try:
        same(nd.softmax(d, axis=None), napier.softmax(x, axis=None))
        assert sum(runs) == 3 * x.size
        same(nd.log_softmax(d.persist()), napier.log_softmax(x))
    finally:
        nd._HELD = held


def test_nothing_is_computed_early():
    def never(block):
        raise RuntimeError("computed")

    d = da.zeros((4, 50000), chunks=(1, 9000), dtype=np.float32).map_blocks(never, dtype=np.float32, meta=np.empty((0, 0), np.float32))
    lazy = [nd.softmax(d), nd.log_softmax(d, None), nd.logsumexp(d), nd.logsumexp(d, axis=1, b=2, return_sign=True)]
    raises(RuntimeError, "computed", lambda: dask.compute(lazy[0]))


def test_empty_and_small():
    for shape, axis in [((0, 5), 1), ((5, 0), 1), ((0,), None), ((1,), 0), ((3, 2), (0, 1))]:
        x = rows(shape)
        same(nd.logsumexp(da.from_array(x), axis=axis), napier.logsumexp(x, axis=axis), shape)
    x = rows((3, 0))
    same(nd.softmax(da.from_array(x)), napier.softmax(x))


def test_refusals():
    x = da.from_array(rows((3, 4)))
    raises(TypeError, "x: expected a Dask array, got ndarray", lambda: nd.softmax(np.zeros(3)))
    raises(IndexError, "2 is out of range", lambda: nd.logsumexp(x, axis=2))
    raises(ValueError, "b: shape (5,) does not broadcast", lambda: nd.logsumexp(x, b=np.ones(5)))
    raises(ValueError, "temperature", lambda: nd.softmax(x, temperature=0))
    raises(ValueError, "compute_chunk_sizes", lambda: nd.softmax(x[x[:, 0] > 0]))
    raises(TypeError, "complex", lambda: nd.softmax(x.astype(np.complex64)))
    raises(ValueError, "sample_size: 1 ", lambda: nd.UMAP(sample_size=1))
    raises(ValueError, "not fitted", lambda: nd.UMAP().transform(x))
    raises(ValueError, "3 dimensions", lambda: nd.UMAP().fit(x[..., None]))
    raises(TypeError, "no_such", lambda: nd.UMAP(no_such=1))


def test_umap():
    x = rows((2000, 6)) + np.repeat(np.eye(6, dtype=np.float32) * 30, 334, axis=0)[:2000]
    maps = []
    for chunks in [(2000, 6), (300, 4), ((1, 1999), 1)]:
        model = nd.UMAP(sample_size=400, n_epochs=50, n_neighbors=10)
        d = da.from_array(x, chunks=chunks)
        lazy = model.fit_transform(d)
        assert lazy.chunks[0] == d.chunks[0] and lazy.dtype == np.float32
        maps.append(lazy.compute())
    fitted = napier.UMAP(n_epochs=50, n_neighbors=10).fit(x[model.sample_])
    assert len(set(model.sample_.tolist())) == 400
    for found in maps:
        assert found.tobytes() == fitted.transform(x).tobytes()


def test_a_worker_that_dies():
    """Another worker does its blocks again: the same bits."""
    from distributed import Client, LocalCluster

    warnings.filterwarnings("ignore")
    marker = os.path.join(dask.config.get("temporary-directory") or os.environ.get("TMPDIR", "/tmp"), f"napier-dask-{os.getpid()}")

    def deadly(block, block_info=None):
        if block_info and block_info[0]["chunk-location"] == (1, 2):
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return block
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    x = rows((3, 40000))
    source = da.from_array(x, chunks=(1, 9999)).map_blocks(deadly, dtype=np.float32, meta=np.empty((0, 0), np.float32))
    with LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="1GB", dashboard_address=None,
                      silence_logs=50) as cluster, Client(cluster):
        try:
            same(nd.logsumexp(source, axis=1), napier.logsumexp(x, axis=1))
            assert os.path.exists(marker), "no worker died"
            same(nd.softmax(source), napier.softmax(x))
        finally:
            if os.path.exists(marker):
                os.remove(marker)


def test_the_command_of_the_page():
    """docs/scale.md begins with it. The folder of the script is the first where Python looks for modules."""
    done = python(os.path.join(ROOT, "bench", "python", "dask_memory.py"), "--gigabytes", "0.02")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("[True, True, True, True]"), done.stdout
