#!/usr/bin/env python3
"""An array larger than memory through napier.dask: the time, the peak memory of each worker, and the bits.

    PYTHONPATH=<build>/python bench/python/dask_memory.py [--gigabytes 20] [--workers 2] [--memory 2GB] [--columns 37984]
        [--only weighted]

The array is random, float32, and never stored: workers make its chunks, of 256 rows, when they are needed. Weights are a second
such array. The last line compares some rows, and the reductions of all elements with other chunks, with each other and with the
calls in memory. Peak memory is that since the workers began; what they send one another is that of each line. --only: the lines
that have this word."""

import argparse
import resource
import time

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import napier
import napier.dask

COLUMNS = 151936


def array(rows, chunk_rows, chunk_columns, seed=0):
    x = da.random.default_rng(seed).random((rows, COLUMNS), dtype=np.float32, chunks=(256, 37984))
    return (x * np.float32(40) - np.float32(20)).rechunk((chunk_rows, chunk_columns))


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def sent_bytes(dask_worker):
    return dask_worker.transfer_outgoing_bytes_total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--columns", type=int, default=37984, help="of a chunk")
    parser.add_argument("--only", default="", help="the lines that have this word")
    options = parser.parse_args()
    rows = round(options.gigabytes * 1e9 / (4 * COLUMNS))
    with (
        LocalCluster(n_workers=options.workers, threads_per_worker=1, memory_limit=options.memory, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def run(name, lazy):
            if options.only not in name:
                return None
            started, before = time.perf_counter(), sum(client.run(sent_bytes).values())
            result = lazy.compute()
            seconds, sent = time.perf_counter() - started, sum(client.run(sent_bytes).values()) - before
            peaks = ", ".join(f"{p / 1e9:.2f} GB" for p in client.run(peak_bytes).values())
            print(f"{name:34s} {seconds:7.1f} s   peaks {peaks}   sent {sent / 1e6:.2f} MB", flush=True)
            return result

        x = array(rows, 256, options.columns)
        print(
            f"{x.shape[0]} x {x.shape[1]} float32, {x.nbytes / 1e9:.1f} GB, {x.npartitions} chunks of "
            f"{x.chunks[0][0]} x {x.chunks[1][0]}; {options.workers} workers of {options.memory}",
            flush=True,
        )
        run("nothing but making it: its max", x.max())
        rowwise = run("logsumexp of each row", napier.dask.logsumexp(x, axis=1))
        everything = run("logsumexp of all elements", napier.dask.logsumexp(x))
        run("softmax of each row, its sum", napier.dask.softmax(x).sum(dtype=np.float64))
        run("softmax of all elements, its sum", napier.dask.softmax(x, axis=None).sum(dtype=np.float64))
        b = array(rows, 256, options.columns, seed=1)  # of both signs
        weighted = run("weighted logsumexp of each row", napier.dask.logsumexp(x, axis=1, b=b))
        weighted_all = run("weighted logsumexp of all elements", napier.dask.logsumexp(x, b=b, return_sign=True)[0])
        other_x, other_b = array(rows, 200, 50000), array(rows, 200, 50000, seed=1)
        other = run("logsumexp of all, other chunks", napier.dask.logsumexp(other_x))
        weighted_other = run("weighted, of all, other chunks", napier.dask.logsumexp(other_x, b=other_b, return_sign=True)[0])
        some, some_b = x[:512].compute(), b[:512].compute()
    pairs = [
        (rowwise, napier.logsumexp(some, axis=1)),
        (weighted, napier.logsumexp(some, axis=1, b=some_b)),
        (everything, other),
        (weighted_all, weighted_other),
    ]
    same = [np.array_equal(np.atleast_1d(a)[:512].view(np.int32), np.atleast_1d(b).view(np.int32)) for a, b in pairs if a is not None]
    print(f"512 rows have the bits of the call in memory, and all elements have one value with both chunks: {same}")


if __name__ == "__main__":
    main()
