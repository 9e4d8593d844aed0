"""A Python worker: the lines of workers/worker.h, answered by the peer that NAME_peer.py holds.

    worker.py NAME THREADS

A peer has VERSION and OPERATIONS: by the name of an operation, a function of a Job that gives the ways to compute it, by
name of their variant; it raises Skip where the library cannot do it. A way is called without arguments, is finished when it
returns, and gives its results by name. A peer may have start(threads), called once, and FIGURES, a dict of what else there
is to say of the last run."""
import ctypes
import gc
import importlib
import json
import mmap
import sys
import time
import traceback

import numpy as np

HUGE_PAGE = 2 << 20
LIBC = ctypes.CDLL(None)


class Skip(Exception):
    """This library cannot do this job."""


def private_memory(size):
    """On a 2 MiB boundary, in huge pages where the system allows, touched before use."""
    whole = (size // HUGE_PAGE + 1) * HUGE_PAGE
    mapped = mmap.mmap(-1, whole + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapped.madvise(mmap.MADV_HUGEPAGE)
    everything = np.frombuffer(mapped, np.uint8)
    start = -everything.ctypes.data % HUGE_PAGE
    everything[start:start + whole] = 0
    return everything[start:start + size]


def private_copy(path):
    source = np.memmap(path, np.uint8, "r")
    copy = private_memory(source.size)
    copy[:] = source
    return copy


def shared(path):
    """A mapping of a file that all workers work in, its pages mapped before use."""
    with open(path, "r+b") as f:
        return np.frombuffer(mmap.mmap(f.fileno(), 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE), np.uint8)


def own_memory(what):
    with open("/proc/self/status", encoding="ascii") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(what))


def plain(x):
    """A tensor or an array as a NumPy array, bfloat16 as float32."""
    if hasattr(x, "detach"):
        x = x.detach()
        x = (x.float() if x.element_size() == 2 else x).numpy()
    x = np.asarray(x)
    return np.ascontiguousarray(x.astype(np.float32) if x.dtype.itemsize == 2 else x)


def raw_bytes(x):
    if hasattr(x, "detach"):
        x = x.detach().contiguous().view(-1)
        x = x.view(sys.modules["torch"].uint8).numpy()
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


class Job:
    """The words of a prepare line, and the arrays that were loaded, as bytes."""

    def __init__(self, op, words, arrays, results, threads):
        self.op, self.words, self.arrays, self.results, self.threads = op, words, arrays, results, threads

    def __getattr__(self, key):
        """A word of the line: a number where it is one."""
        try:
            word = self.words[key]
        except KeyError:
            raise AttributeError(key) from None
        return int(word) if word.lstrip("-").isdigit() else word

    @property
    def axis(self):
        return 0 if self.words["axis"] == "first" else 1

    @property
    def stored(self):
        """Height and width of the input in memory."""
        return (self.rows, self.cols) if self.axis == 1 else (self.cols, self.rows)

    def result(self, name, size):
        """Memory for a result of so many bytes."""
        if name not in self.results:
            self.results[name] = private_memory(size)
        return self.results[name][:size]


class Server:
    def __init__(self, peer, threads):
        self.peer, self.threads = peer, threads
        self.arrays, self.results, self.shared, self.ways, self.last = {}, {}, set(), {}, None
        self.resident, self.told = 0, {}

    def run(self, variant):
        """Seconds by the clock and of the processor."""
        self.last = None  # the memory of the last results goes before new ones come
        processor, wall = time.process_time(), time.perf_counter()
        self.last = self.ways[variant]()
        return time.perf_counter() - wall, time.process_time() - processor

    def load(self, name, path):
        self.arrays[name] = private_copy(path)
        return "done"

    def share(self, name, path):
        self.arrays[name] = self.results[name] = shared(path)
        self.shared.add(name)
        return "done"

    def prepare(self, op, *words):
        self.ways, self.last = {}, None
        self.results = {name: self.results[name] for name in self.shared}
        gc.collect()
        try:
            if op not in self.peer.OPERATIONS:
                raise Skip("no such operation")
            words = dict(word.split("=", 1) for word in words)
            self.ways = self.peer.OPERATIONS[op](Job(op, words, self.arrays, self.results, self.threads))
        except Exception as why:  # a peer's failure is news for the driver, not the end of the run
            return "skip " + told(why)
        return "ready " + " ".join(self.ways)

    def check(self, variant, prefix):
        wall, processor = self.run(variant)
        for name, x in self.last.items():
            if name in self.shared:
                self.results[name][:x.nbytes] = raw_bytes(x)
            else:
                plain(x).tofile(f"{prefix}.{name}")
        self.told = {"highest": own_memory("VmHWM")}
        return f"done {wall:.9g} {processor:.9g} " + " ".join(self.last)

    def fresh(self):
        self.last = None
        gc.collect()
        LIBC.malloc_trim(0)  # memory that was freed must not pass for memory that is not needed
        with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
            reset.write("5")  # the high-water mark starts again
        self.resident = own_memory("VmRSS")
        return "done"

    def go(self, variant, count, warm):
        left = 0.010 if warm == "1" else 0.0
        while left > 0:  # threads that have slept may share a processor for some milliseconds
            left -= self.run(variant)[0]
        times = [self.run(variant) for _ in range(int(count))]
        highest = own_memory("VmHWM")
        ready = sum(x.nbytes for x in self.last.values()) if variant.endswith("_out") else 0
        self.told = {"highest": highest, "taken": highest - self.resident, "results": ready}
        return "times " + " ".join(f"{wall:.9g} {processor:.9g}" for wall, processor in times)

    def figures(self):
        return "figures " + json.dumps(self.told | getattr(self.peer, "FIGURES", {}))

    def clear(self):
        self.arrays, self.results, self.shared, self.ways, self.last = {}, {}, set(), {}, None
        gc.collect()
        return "done"


def told(error):
    """An exception on one line."""
    name = "" if isinstance(error, Skip) else f"{type(error).__name__}: "
    return " ".join(f"{name}{error}".split())[:300]


def main():
    sys.modules["worker"] = sys.modules["__main__"]  # peers import it by its name
    name, threads = sys.argv[1], int(sys.argv[2])
    answers, sys.stdout = sys.stdout, sys.stderr  # a library that prints must not answer for us
    peer = importlib.import_module(f"{name}_peer")
    if hasattr(peer, "start"):
        peer.start(threads)
    print(f"hello {name} {peer.VERSION}", file=answers, flush=True)
    server = Server(peer, threads)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "quit":
            return
        try:
            answer = getattr(server, word)(*rest)
        except Exception as error:
            traceback.print_exc()
            answer = "error " + told(error)
        print(answer, file=answers, flush=True)


main()
