"""Mixtures of experts: a token near a tie of the router takes another expert. The residuals are few and large."""

import numpy as np

from ..case import Finding, level


def inspect(case):
    config = case.reference.config() or {}
    if not any(config.get(k) for k in ("num_experts", "num_local_experts", "n_routed_experts")):
        return
    size = np.abs(case.flat()[0])
    if size.size < 100:
        return
    large = size > max(20 * np.median(size), 1e-3)
    if 0 < large.mean() < 0.2 and size[large].sum() > 0.6 * size.sum():
        yield Finding(
            "experts",
            f"few and large residuals: {large.sum()} of {size.size} tokens have {100 * size[large].sum() / size.sum():.0f} % of it, as "
            "where another expert was chosen",
            "record the router's choices when sampling and replay them when training, or compute the router in float32 on both sides",
            float(size[large].sum() / size.sum()),
            int(large.sum()),
            # an engine in bfloat16 has such tokens, too: a fault where the others are better than that
            fault=level(case) == "" or bool(np.median(size) < case.floors["bfloat16"] / 4),
        )
