"""What a shared prefix saves: attention of 8 sequences of 12 queries on a common prefix of 1000 keys, against one.

    python bench/python/prefix.py        in an environment with napier and numpy

One thread, 16 heads on 8 of k and v, 128 wide; the least processor time of many calls.
"""

import time

import numpy as np

import napier
from timing import least


def call_of(sequences, queries=12, prefix=1000, heads=16, key_heads=8, dim=128):
    draw = np.random.default_rng(0)
    offsets = np.arange(sequences + 1) * queries
    q = draw.standard_normal((queries * sequences, heads, dim)).astype(np.float32)
    k, v = draw.standard_normal((2, prefix + queries * sequences, key_heads, dim)).astype(np.float32)
    whole = (np.zeros(sequences, int), np.full(sequences, prefix))
    return lambda: napier.attention(q, k, v, causal=True, query_offsets=offsets, key_offsets=prefix + offsets, prefix=whole)


def main():
    napier.set_num_threads(1)
    one, eight = least([call_of(1), call_of(8)], 30, clock=time.process_time)
    print(f"1 sequence {1e3 * one:.2f} ms, 8 sequences {1e3 * eight:.2f} ms: {eight / one:.1f} times")


if __name__ == "__main__":
    main()
