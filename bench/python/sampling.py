"""Time of napier.sample on rows of a language model's vocabulary, with the filters that people use.

    python bench/python/sampling.py [--rounds 15] [--json FILE]        in an environment with napier and numpy

Logits are normal: with deviation 1, as those of a random model, nearly all of the vocabulary is within top_p; with 4 a few
thousand are. The filters take turns; the least time counts. bench/python/decode.py has the time of a whole step.
"""

import numpy as np

import napier
from timing import add_rows, least, parser

VOCABULARY = 151936
FILTERS = ({}, {"temperature": 0.7}, {"top_k": 50}, {"top_k": 20, "top_p": 0.95}, {"min_p": 0.05}, {"top_p": 0.95})


def main():
    wanted = parser(__doc__, 15).parse_args()
    napier.set_num_threads(2)
    draw = np.random.default_rng(0)
    for deviation in (1, 4):
        logits = deviation * draw.standard_normal((64, VOCABULARY), dtype=np.float32)
        for rows in (1, 8, 64):
            calls = [lambda f=f: napier.sample(logits[:rows], seed=1, **f) for f in FILTERS]
            for f, seconds in zip(FILTERS, least(calls, wanted.rounds)):
                name = " ".join(f"{key}={value}" for key, value in f.items()) or "no filter"
                print(f"deviation {deviation}, {rows:2} rows, {name}: {1e3 * seconds:.3f} ms")
                add_rows(wanted.json, [{"deviation": deviation, "rows": rows, "filter": name, "ms": 1e3 * seconds}])


if __name__ == "__main__":
    main()
