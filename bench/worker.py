"""What a Python worker is made of: the same lines as bench/worker.h, the same kind of memory as bench/worker.c.

A peer gives `serve` its name, its version and a class with
    variants                            names of the ways to call it
    prepare(job) -> None                may raise Skip("why not")
    run(variant) -> None                one call, finished when it returns
    result(variant) -> numpy array      what the last run gave, in the stored shape
"""
import mmap
import sys
import time
from dataclasses import dataclass

import numpy as np

HUGE_PAGE = 2 << 20


class Skip(Exception):
    """This library cannot do this job."""


@dataclass
class Job:
    op: str
    dtype: str  # "f32" or "bf16" (held as its bits in uint16)
    axis: int  # 1: last, 0: first
    rows: int
    cols: int
    threads: int
    input: np.ndarray = None  # 2-D, [rows, cols] or [cols, rows]
    output: np.ndarray = None  # as input for softmax and log_softmax, else 1-D

    @property
    def stored(self):
        return (self.rows, self.cols) if self.axis == 1 else (self.cols, self.rows)

    @property
    def whole(self):
        return self.op == "logsumexp_all"


class Buffer:
    """Private memory on a 2 MiB boundary, in huge pages where the system allows, touched before use."""

    def __init__(self):
        self.map, self.bytes = None, None

    def take(self, size):
        room = (size // HUGE_PAGE + 1) * HUGE_PAGE
        if self.bytes is not None and room <= self.bytes.size <= 4 * room + (64 << 20):
            return self.bytes[:size]
        self.free()
        self.map = mmap.mmap(-1, room + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.map.madvise(mmap.MADV_HUGEPAGE)
        everything = np.frombuffer(self.map, np.uint8)
        start = -everything.ctypes.data % HUGE_PAGE
        self.bytes = everything[start:start + room]
        self.bytes[:] = 0
        return self.bytes[:size]

    def free(self):
        # A library may still hold a view; the memory then goes when that view does.
        self.map, self.bytes = None, None


def shared(path, size):
    """A mapping of a file that all workers work in, its pages mapped before use."""
    with open(path, "r+b") as f:
        mapped = mmap.mmap(f.fileno(), size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    return np.frombuffer(mapped, np.uint8)


def serve(name, version, peer, threads):
    say = lambda text: print(text, file=answers, flush=True)  # noqa: E731
    answers, sys.stdout = sys.stdout, sys.stderr  # a library that prints must not answer for us
    say(f"hello {name} {version}")
    buffers, job, loaded = (Buffer(), Buffer()), None, None
    for line in sys.stdin:
        word, *rest = line.split()
        try:
            if word == "quit":
                return
            if word == "prepare":
                op, dtype, axis, rows, cols, path, out_path = rest
                job = Job(op, dtype, 1 if axis == "last" else 0, int(rows), int(cols), threads)
                item = np.dtype(np.uint16 if dtype == "bf16" else np.float32)
                size = job.rows * job.cols
                out = {"logsumexp": job.rows, "logsumexp_all": 1}.get(op, size)
                if out_path == "-":
                    raw = buffers[0].take(size * item.itemsize)
                    if path != loaded:
                        raw[:] = np.memmap(path, np.uint8, "r", shape=raw.shape)
                    room = buffers[1].take(out * item.itemsize)
                else:  # too large for a copy each
                    for buffer in buffers:
                        buffer.free()
                    raw = shared(path, size * item.itemsize)
                    room = shared(out_path, out * item.itemsize)
                loaded = path if out_path == "-" else None
                job.input = raw.view(item).reshape(job.stored)
                job.output = room.view(item)
                if out == size and op in ("softmax", "log_softmax"):
                    job.output = job.output.reshape(job.stored)
                peer.prepare(job)
                say("ready " + " ".join(peer.variants))
            elif word == "check":
                variant, samples, path = rest
                start = time.perf_counter()
                peer.run(variant)
                took = time.perf_counter() - start
                result, samples = np.asarray(peer.result(variant)), int(samples)
                rows = np.arange(samples) * job.rows // samples
                if op == "logsumexp":
                    result = result.reshape(-1)[rows]
                elif op != "logsumexp_all":
                    result = result.reshape(job.stored)
                    result = result[rows] if job.axis == 1 else result[:, rows].T
                np.ascontiguousarray(result).tofile(path)
                say(f"done {took:.9g}")
            elif word == "go":
                variant, count = rest[0], int(rest[1])
                peer.run(variant)  # wakes threads and caches, not counted
                times = []
                for _ in range(count):
                    start = time.perf_counter()
                    peer.run(variant)
                    times.append(time.perf_counter() - start)
                say("times " + " ".join(f"{t:.9g}" for t in times))
            elif word == "release":
                peer.release()
                job = loaded = result = raw = room = None
                for buffer in buffers:
                    buffer.free()
                say("done")
            else:
                say("error unknown line")
        except Skip as why:
            say(f"skip {why}")
        except Exception as error:  # a peer's failure is news for the driver, not the end of the run
            text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            say(("skip " if word == "prepare" else "error ") + text)
