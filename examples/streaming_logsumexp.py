"""logsumexp of a file that is larger than the memory this process may use.

    python streaming_logsumexp.py [MEGABYTES]

The file is read in blocks of a megabyte by four threads, each with its part of the row and a SoftmaxState of 9 KB; the states
are merged. Whatever the cuts, the result has the bits of one call on all of it, and softmax of any block follows.
"""

import argparse
import os
import resource
import tempfile
import threading
from typing import Iterator

import numpy as np
from numpy.typing import NDArray

import napier

BLOCK = 1 << 18  # floats


def write_logits(path: str, count: int) -> None:
    rng = np.random.default_rng(0)
    with open(path, "wb") as file:
        for at in range(0, count, BLOCK):
            file.write((4 * rng.standard_normal(min(BLOCK, count - at), np.float32)).tobytes())


def blocks(path: str, begin: int, end: int) -> Iterator[NDArray[np.float32]]:
    """The floats begin .. end of a file, block by block."""
    with open(path, "rb") as file:
        file.seek(4 * begin)
        for at in range(begin, end, BLOCK):
            yield np.frombuffer(file.read(4 * min(BLOCK, end - at)), np.float32)


def state_of(path: str, begin: int, end: int) -> napier.SoftmaxState:
    state = napier.SoftmaxState(first_index=begin)
    for block in blocks(path, begin, end):
        state.update(block)
    return state


def main(megabytes: int) -> None:
    count = megabytes * (1 << 18)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = os.path.join(folder, "logits.f32")
        write_logits(path, count)
        whole = state_of(path, 0, count).finish()

        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        limit = used + (min(megabytes, 64) << 20) * 3 // 4  # what is there already, and less than the file needs
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        try:
            np.fromfile(path, np.float32)
            print(f"{megabytes} MB fit; a larger file would not")
        except MemoryError:
            print(f"{megabytes} MB do not fit into the memory that is left")

        threading.stack_size(1 << 20)
        cuts = [0, count // 5 + 7, count // 2, count - 100, count]
        states: dict[int, napier.SoftmaxState] = {}

        def work(k: int) -> None:
            states[k] = state_of(path, cuts[k], cuts[k + 1])

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        state = states[0]
        for k in range(1, 4):
            state.merge(states[k])
        lse = state.finish()
        total = sum(float(state.apply(block).sum(dtype=np.float64)) for block in blocks(path, 0, count))
    print(f"logsumexp of {count} logits in four parts: {lse!r}, {'the same bits' if lse == whole else 'other bits'} as in one")
    print(f"their softmax adds up to 1 {total - 1:+.1e}")
    assert lse == whole and abs(total - 1) < 1e-5


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megabytes", type=int, nargs="?", default=256, help="the size of the file (default 256)")
    main(parser.parse_args().megabytes)
