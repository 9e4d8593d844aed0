# %% [markdown]
# # What the losses of GRPO do to a token
# A token's ratio is its probability under the policy divided by that under the old one. The picture shows which ratios still
# have a gradient, that is which tokens still teach, for tokens of good and of bad responses.

# %%
import matplotlib.pyplot as plt
import numpy as np

import napier

ratio = np.linspace(0.5, 2, 301)
old = np.full(301, -2.0, dtype=np.float32)
logprobs = (old + np.log(ratio)).astype(np.float32)
offsets = np.arange(302)  # each token is a response of its own
losses = {"grpo": {}, "cispo": {"epsilon_high": 5}, "sapo": {}}


def pull(loss_type, advantage):
    """How much a step of descent raises the token's log-probability."""
    advantages = np.full(301, advantage, dtype=np.float32)
    made = napier.grpo_loss(logprobs, advantages, offsets, old_logprobs=old, loss_type=loss_type, **losses[loss_type])
    return -301 * made.grad_logprobs


# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.5))
for axis, advantage in zip(axes, (1, -1)):
    for loss_type in losses:
        axis.plot(ratio, pull(loss_type, advantage), label=loss_type)
    axis.set_title(f"advantage {advantage:+d}")
    axis.set_xlabel("ratio")
axes[0].set_ylabel("pull on the token")
axes[0].legend()
plt.show()

# %% [markdown]
# grpo clips at 0.8 and 1.2: beyond, a token no longer teaches. cispo keeps every token, with a weight of at most 5, and sapo lets it fade.
