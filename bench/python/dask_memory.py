#!/usr/bin/env python3
"""An array larger than memory through napier.dask: the time, the peak memory of each worker, and the bits.

    PYTHONPATH=<build>/python bench/python/dask_memory.py [--gigabytes 20] [--workers 2] [--memory 2GB]

The array is random, float32, and never stored: workers make its chunks when they are needed. The last lines compare some
rows, and one reduction with other chunks, with the calls in memory."""
import argparse
import resource
import time

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import napier
import napier.dask

COLUMNS = 151936


def array(rows, chunk_rows, chunk_columns):
    x = da.random.default_rng(0).random((rows, COLUMNS), dtype=np.float32, chunks=(256, 37984))
    return (x * np.float32(40) - np.float32(20)).rechunk((chunk_rows, chunk_columns))


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="2GB")
    options = parser.parse_args()
    rows = round(options.gigabytes * 1e9 / (4 * COLUMNS))
    with LocalCluster(n_workers=options.workers, threads_per_worker=1, memory_limit=options.memory,
                      dashboard_address=None) as cluster, Client(cluster) as client:
        def run(name, lazy):
            started = time.perf_counter()
            result = lazy.compute()
            peaks = client.run(peak_bytes).values()
            print(f"{name:34s} {time.perf_counter() - started:7.1f} s   peak memory of a worker so far: "
                  + ", ".join(f"{p / 1e9:.2f} GB" for p in peaks), flush=True)
            return result

        x = array(rows, 256, 37984)
        print(f"{x.shape[0]} x {x.shape[1]} float32, {x.nbytes / 1e9:.1f} GB, {x.npartitions} chunks of "
              f"{x.chunks[0][0]} x {x.chunks[1][0]}; {options.workers} workers of {options.memory}", flush=True)
        run("nothing but making it: its max", x.max())
        rowwise = run("logsumexp of each row", napier.dask.logsumexp(x, axis=1))
        everything = run("logsumexp of all elements", napier.dask.logsumexp(x))
        run("softmax of each row, its sum", napier.dask.softmax(x).sum(dtype=np.float64))
        run("softmax of all elements, its sum", napier.dask.softmax(x, axis=None).sum(dtype=np.float64))
        other = run("logsumexp of all, other chunks", napier.dask.logsumexp(array(rows, 200, 50000)))
        some = x[:512].compute()
    rows_same = np.array_equal(napier.logsumexp(some, axis=1).view(np.int32), rowwise[:512].view(np.int32))
    print(f"512 rows have the bits of the call in memory: {rows_same}; the sum of all has one value: "
          f"{np.float32(everything).tobytes() == np.float32(other).tobytes()}")


if __name__ == "__main__":
    main()
