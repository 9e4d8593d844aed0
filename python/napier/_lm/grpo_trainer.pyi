"""Types of napier.trl.GRPOTrainer."""

from typing import Any, Literal, Optional

import trl

from .causal_lm import CausalLM

__all__ = ["GRPOTrainer", "Rollout"]

class Rollout:
    def __init__(self, compute: Optional[Literal["f32", "bf16"]] = None, memory: int = 0) -> None: ...
    def __call__(self, prompts: list[Any], trainer: trl.GRPOTrainer) -> dict[str, Any]: ...
    def complete(self, prompt_ids: list[list[int]], trainer: trl.GRPOTrainer) -> tuple[list[list[int]], list[list[float]]]: ...
    def sampler(self, trainer: trl.GRPOTrainer) -> CausalLM: ...

class GRPOTrainer(trl.GRPOTrainer):
    rollout: Rollout
    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: Optional[trl.GRPOConfig] = None,
        *others: Any,
        compute: Optional[Literal["f32", "bf16"]] = None,
        memory: int = 0,
        **options: Any,
    ) -> None: ...
