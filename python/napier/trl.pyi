"""Types of napier.trl."""

from typing import Literal, Optional, Sequence, TypedDict, Unpack

import torch

from ._lm.grpo_trainer import GRPOTrainer as GRPOTrainer, Rollout as Rollout

__all__ = [
    "GRPOTrainer",
    "Rollout",
    "entropy_from_logits",
    "grpo_advantages",
    "grpo_loss",
    "grpo_loss_from_hidden",
    "grpo_loss_from_logits",
    "per_token_kl",
    "selective_log_softmax",
    "selective_log_softmax_and_entropy",
]

class _Config(TypedDict, total=False):
    """Options of GRPOConfig."""

    loss_type: str
    beta: float
    epsilon: float
    epsilon_high: Optional[float]
    delta: Optional[float]
    importance_sampling_level: Literal["token", "sequence"]
    max_completion_length: int
    use_bias_correction_kl: bool
    sapo_temperature_pos: float
    sapo_temperature_neg: float
    vespo_k_pos: float
    vespo_lambda_pos: float
    vespo_k_neg: float
    vespo_lambda_neg: float
    top_entropy_quantile: float
    entropy_coef: float
    off_policy_mask_threshold: Optional[float]
    use_vllm: bool
    vllm_importance_sampling_correction: bool
    vllm_importance_sampling_mode: Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
    vllm_importance_sampling_clip_max: Optional[float]
    vllm_importance_sampling_clip_min: Optional[float]

def selective_log_softmax(
    logits: torch.Tensor, index: torch.Tensor, temperature: float = 1.0, row_mask: Optional[torch.Tensor] = None
) -> torch.Tensor: ...
def entropy_from_logits(logits: torch.Tensor, chunk_size: int = 128) -> torch.Tensor: ...
def selective_log_softmax_and_entropy(
    logits: torch.Tensor,
    index: torch.Tensor,
    entropy_requires_grad: bool = True,
    temperature: float = 1.0,
    row_mask: Optional[torch.Tensor] = None,
) -> tuple[torch.Tensor, torch.Tensor]: ...
def per_token_kl(
    per_token_logps: torch.Tensor,
    ref_per_token_logps: torch.Tensor,
    completion_mask: Optional[torch.Tensor] = None,
    estimator: Literal["k1", "k2", "k3"] = "k3",
) -> torch.Tensor: ...
def grpo_advantages(
    rewards: torch.Tensor | Sequence[float],
    num_generations: int,
    *,
    reward_weights: Optional[Sequence[float] | torch.Tensor] = None,
    scale_rewards: str | bool = "group",
    multi_objective_aggregation: str = "sum_then_normalize",
) -> torch.Tensor: ...
def grpo_loss(
    per_token_logps: torch.Tensor,
    advantages: torch.Tensor,
    completion_mask: Optional[torch.Tensor] = None,
    *,
    old_per_token_logps: Optional[torch.Tensor] = None,
    ref_per_token_logps: Optional[torch.Tensor] = None,
    sampling_per_token_logps: Optional[torch.Tensor] = None,
    entropies: Optional[torch.Tensor] = None,
    tool_mask: Optional[torch.Tensor] = None,
    num_items_in_batch: Optional[float | torch.Tensor] = None,
    args: Optional[object] = None,
    **config: Unpack[_Config],
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]: ...
def grpo_loss_from_logits(
    logits: torch.Tensor,
    completion_ids: torch.Tensor,
    advantages: torch.Tensor,
    completion_mask: Optional[torch.Tensor] = None,
    *,
    old_per_token_logps: Optional[torch.Tensor] = None,
    ref_per_token_logps: Optional[torch.Tensor] = None,
    sampling_per_token_logps: Optional[torch.Tensor] = None,
    tool_mask: Optional[torch.Tensor] = None,
    num_items_in_batch: Optional[float | torch.Tensor] = None,
    args: Optional[object] = None,
    temperature: Optional[float] = None,
    **config: Unpack[_Config],
) -> tuple[torch.Tensor, dict[str, torch.Tensor], torch.Tensor, torch.Tensor]: ...
def grpo_loss_from_hidden(
    hidden_states: torch.Tensor,
    lm_head_weight: torch.Tensor,
    completion_ids: torch.Tensor,
    advantages: torch.Tensor,
    completion_mask: Optional[torch.Tensor] = None,
    *,
    old_per_token_logps: Optional[torch.Tensor] = None,
    ref_per_token_logps: Optional[torch.Tensor] = None,
    sampling_per_token_logps: Optional[torch.Tensor] = None,
    tool_mask: Optional[torch.Tensor] = None,
    num_items_in_batch: Optional[float | torch.Tensor] = None,
    args: Optional[object] = None,
    temperature: Optional[float] = None,
    **config: Unpack[_Config],
) -> tuple[torch.Tensor, dict[str, torch.Tensor], torch.Tensor, torch.Tensor]: ...
