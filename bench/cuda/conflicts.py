"""How many clocks a load from a table of exp takes the 32 threads of a warp, by the banks of shared memory.

    python bench/cuda/conflicts.py

A table has one float for each 16-bit number (ops/tokens/gpu/token_logprobs.cu). Threads that want different words of one bank wait
for each other; those that want the same word do not. Logits are normal, of several standard deviations.
"""
import numpy as np

BANKS, THREADS = 32, 32


def clocks(bits):
    """Mean over warps; bits: [..., 1024], tiles as token_logprobs.cu gives them to threads."""
    of_warp = bits.reshape(-1, 4, THREADS, 8).swapaxes(2, 3).reshape(-1, THREADS)
    worst = [np.bincount(np.unique(words) % BANKS, minlength=BANKS).max() for words in of_warp]
    return np.mean(worst)


def main():
    generator = np.random.default_rng(0)
    print("| standard deviation | bf16 | f16 |\n|---|---|---|")
    for deviation in (1, 3, 10):
        x = (generator.standard_normal((600, 1024)) * deviation).astype(np.float32)
        bf16 = (x.view(np.uint32) + 0x8000) >> 16
        print(f"| {deviation} | {clocks(bf16.astype(np.int64)):.2f} | {clocks(x.astype(np.float16).view(np.uint16).astype(np.int64)):.2f} |")


if __name__ == "__main__":
    main()
