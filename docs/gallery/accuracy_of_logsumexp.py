# %% [markdown]
# # The error of a logsumexp in f32
# A sum of a million exponentials loses digits, and how many depends on the order of its additions. The picture shows the error in
# units of the last place (ulp) for rows of growing length.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np

import napier

random = np.random.default_rng(1)
lengths = [10**k for k in range(1, 7)]
rows = [random.standard_normal(n).astype(np.float32) * 8 for n in lengths]


def one_after_the_other(x):
    top = x.max()
    return top + np.log(np.cumsum(np.exp(x - top))[-1])


def error(function, x):
    true = math.log(math.fsum(np.exp(x.astype(np.float64))))
    return abs(float(function(x)) - true) / float(np.spacing(np.float32(true)))


# %%
for name, function in {"napier.logsumexp": napier.logsumexp, "f32, one after the other": one_after_the_other}.items():
    plt.loglog(lengths, [max(error(function, x), 0.01) for x in rows], "o-", label=name)
plt.axhline(0.5, color="grey", linestyle=":", label="the best that f32 can do")
plt.xlabel("length of the row")
plt.ylabel("error, ulp")
plt.legend()
plt.show()

# %% [markdown]
# A row may come in blocks. Merged, here from the last to the first, they give the bits of the one call:

# %%
states = [napier.SoftmaxState("float32", first_index=i).update(rows[-1][i : i + 102400]) for i in range(0, 10**6, 102400)]
for left, right in reversed(list(zip(states, states[1:]))):
    left.merge(right)
states[0].finish() == napier.logsumexp(rows[-1])
