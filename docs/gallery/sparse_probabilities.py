# %% [markdown]
# # Softmax, entmax and sparsemax
# Softmax gives every class a share. Sparsemax and entmax give 0 to those that are far behind.

# %%
import matplotlib.pyplot as plt
import numpy as np

import napier

lead = np.linspace(-3, 3, 301)
logits = np.stack([lead, np.zeros_like(lead), np.full_like(lead, -0.5)], axis=1)
functions = {"softmax": napier.softmax, "entmax, alpha 1.5": napier.entmax, "sparsemax": napier.sparsemax}

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True)
for axis, (name, function) in zip(axes, functions.items()):
    axis.plot(lead, function(logits))
    axis.set_title(name)
    axis.set_xlabel("logit of the first class")
axes[0].set_ylabel("probability of each class")
plt.show()

# %% [markdown]
# A temperature divides the logits, and at 0.3 softmax is nearly as decided, but never 0:

# %%
napier.softmax(logits[-1], temperature=0.3)
