"""Split products beside those of f32: how far each is from the exact product, and what each takes.

    python bench/python/split.py [--json FILE]        in an environment with napier, numpy and ml_dtypes or torch

Activations are f32, weights bf16. The exact product is of long double (64 bits of fraction). An error is divided by
2^-24 sum |a b|, the unit in which its bound is written. Rounds alternate between the contestants; the least time counts.
"""

import numpy as np

import napier
from timing import add_rows, least, parser

ROWS, COLUMNS = 24, 48


def bf16_of(x):
    """x cut to bf16, as the float32 with these values and as what napier takes."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16
    try:
        import ml_dtypes

        narrow = bits.astype(np.uint16).view(ml_dtypes.bfloat16)
    except ImportError:
        import torch

        narrow = torch.from_numpy(bits.astype(np.uint16).view(np.int16)).view(torch.bfloat16)
    return (bits << 16).view(np.float32), narrow


def data_of(kind, k, rng):
    """Activations [ROWS, k] and weights [COLUMNS, k]."""
    a, w = rng.standard_normal((ROWS, k)), 0.02 * rng.standard_normal((COLUMNS, k))
    if kind == "outliers":  # a few activations of a hundred times the size, as transformers have
        a[:, rng.choice(k, 6, replace=False)] *= 300
    elif kind == "wide":
        a, w = a * 2.0 ** rng.integers(-12, 13, a.shape), w * 2.0 ** rng.integers(-12, 13, w.shape)
    elif kind == "cancelling":  # pairs of terms that leave 2^-12 of themselves
        a[:, 1::2] = a[:, 0::2] * (1 + 2.0**-12 * rng.standard_normal((ROWS, k // 2)))
        w[:, 1::2] = -w[:, 0::2]
    elif kind == "positive":
        a, w = abs(a), abs(w)
    return a.astype(np.float32), w


def errors(rng):
    for k in (1024, 3072):
        for kind in ("normal", "positive", "outliers", "wide", "cancelling"):
            a, w = data_of(kind, k, rng)
            wide, narrow = bf16_of(w)
            exact = a.astype(np.longdouble) @ wide.T.astype(np.longdouble)
            unit = 2.0**-24 * (abs(a).astype(np.longdouble) @ abs(wide).T.astype(np.longdouble))
            made = {
                "f32": np.asarray(napier.matmul(a, wide.T)),
                "bf16": None,
                "split": np.asarray(napier.matmul(a, narrow.T, dtype="float32", split=True)),
            }
            made["bf16"] = np.asarray(napier.matmul(bf16_of(a)[1], narrow.T, dtype="float32"))
            for name in ("f32", "split", "bf16"):
                off = abs(made[name].astype(np.longdouble) - exact) / unit
                yield {
                    "table": "error",
                    "data": kind,
                    "k": k,
                    "product": name,
                    "rms": float(np.sqrt(np.mean(off**2))),
                    "largest": float(off.max()),
                }


def speed(rounds):
    rng = np.random.default_rng(2)
    for m, k, n in ((m, 1024, 3072) for m in (1, 2, 4, 8, 16, 64, 512)):
        a = rng.standard_normal((m, k)).astype(np.float32)
        narrow = bf16_of(rng.standard_normal((n, k)))[1]
        short = bf16_of(a)[1]
        times = least(
            [
                lambda: napier.matmul(a, narrow.T, dtype="float32"),
                lambda: napier.matmul(a, narrow.T, dtype="float32", split=True),
                lambda: napier.matmul(short, narrow.T, dtype="float32"),
            ],
            rounds,
        )
        yield {
            "table": "ms",
            "m": m,
            "k": k,
            "n": n,
            "threads": napier.get_num_threads(),
            "f32": times[0] * 1e3,
            "split": times[1] * 1e3,
            "bf16": times[2] * 1e3,
        }


def main():
    options = parser(__doc__, 15).parse_args()
    print("error, in 2^-24 sum |a b|: root of the mean square (largest)")
    rows = list(errors(np.random.default_rng(1)))
    for r in rows[::3]:
        same = [x for x in rows if x["data"] == r["data"] and x["k"] == r["k"]]
        print(f"{r['data']:12} k {r['k']:5}  " + "   ".join(f"{x['product']} {x['rms']:8.4g} ({x['largest']:.4g})" for x in same))
    timed = list(speed(options.rounds))
    print(f"milliseconds, {napier.get_num_threads()} threads, {napier.get_isa()}")
    for r in timed:
        print(f"{r['m']:4} x {r['k']} x {r['n']}   f32 {r['f32']:8.3f}   split {r['split']:8.3f}   bf16 {r['bf16']:8.3f}")
    add_rows(options.json, rows + timed)


if __name__ == "__main__":
    main()
