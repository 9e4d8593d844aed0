"""Types of napier.rl. Array: as in _napier.pyi."""

from typing import Any, NamedTuple, Optional

from ._napier import (
    gather_logprobs_backward as gather_logprobs_backward,
    grpo_token_loss_backward as grpo_token_loss_backward,
    kl_full_backward as kl_full_backward,
    kl_per_response_backward as kl_per_response_backward,
    linear_token_logprobs_backward as linear_token_logprobs_backward,
    rubric_score_backward as rubric_score_backward,
    token_logprobs_backward as token_logprobs_backward,
)

__all__ = [
    "GrpoFromHidden",
    "GrpoFromLogits",
    "GrpoLoss",
    "Sampled",
    "TokenLogprobs",
    "compute_grpo_loss",
    "compute_kl",
    "gather_logprobs",
    "gather_logprobs_backward",
    "group_advantages",
    "grpo_from_hidden",
    "grpo_from_logits",
    "grpo_loss",
    "grpo_token_loss",
    "grpo_token_loss_backward",
    "kl_full",
    "kl_full_backward",
    "kl_per_response",
    "kl_per_response_backward",
    "linear_token_logprobs",
    "linear_token_logprobs_backward",
    "rubric_score",
    "rubric_score_backward",
    "sample",
    "token_logprobs",
    "token_logprobs_backward",
]

Array = Any

class TokenLogprobs(NamedTuple):
    logprobs: Any = None
    lse: Any = None
    entropy: Any = None
    loss: Any = None
    argmax: Any = None
    rank: Any = None
    top_ids: Any = None
    top_logprobs: Any = None

def token_logprobs(
    logits: Array,
    ids: Optional[Any] = None,
    *,
    temperature: float = 1.0,
    softcap: float = 0.0,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    keep: Optional[Any] = None,
    lse: bool = False,
    entropy: bool = False,
    loss: bool = False,
    argmax: bool = False,
    rank: bool = False,
    top_k: int = 0,
) -> TokenLogprobs: ...
def linear_token_logprobs(
    hidden: Array,
    weights: Array,
    ids: Optional[Any] = None,
    *,
    temperature: float = 1.0,
    softcap: float = 0.0,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    keep: Optional[Any] = None,
    lse: bool = False,
    entropy: bool = False,
    loss: bool = False,
    argmax: bool = False,
    rank: bool = False,
    top_k: int = 0,
    split: bool = False,
) -> TokenLogprobs: ...

class Sampled(NamedTuple):
    ids: Any
    logprobs: Any
    plain_logprobs: Any

def sample(
    logits: Array,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    keep: Optional[Any] = None,
    prompts: Optional[Any] = None,
    prompt_offsets: Optional[Any] = None,
    outputs: Optional[Any] = None,
    output_offsets: Optional[Any] = None,
    seed: Any = 0,
    samples: Optional[Any] = None,
    positions: Optional[Any] = None,
) -> Sampled: ...
def gather_logprobs(logprobs: Array, ids: Array) -> Any: ...
def kl_per_response(
    policy_logprobs: Array,
    ref_logprobs: Array,
    offsets: Array,
    *,
    mask: Optional[Any] = None,
    estimator: str = "k1",
    reduction: str = "sum",
    clamp_ratio: float = 0.0,
    clamp_kl: float = 0.0,
) -> Any: ...

compute_kl = kl_per_response

def kl_full(policy_logits: Array, ref_logits: Array, *, temperature: float = 1.0) -> Any: ...
def rubric_score(logprobs: Array, token_ids: Array, offsets: Array, rubric: Array, weights: Array) -> Any: ...

class GrpoLoss(NamedTuple):
    loss: float
    metrics: dict[str, float]
    grad_logprobs: Any
    grad_entropies: Any

class GrpoFromLogits(NamedTuple):
    loss: float
    metrics: dict[str, float]
    grad_logits: Any
    logprobs: Any
    entropies: Any

class GrpoFromHidden(NamedTuple):
    loss: float
    metrics: dict[str, float]
    grad_hidden: Any
    grad_weights: Any
    logprobs: Any
    entropies: Any

def group_advantages(rewards: Array, groups: Any, *, scale: str = "group", epsilon: float = 1e-4) -> Any: ...
def grpo_token_loss(
    logprobs: Array,
    advantages: Array,
    offsets: Array,
    *,
    old_logprobs: Optional[Any] = None,
    ref_logprobs: Optional[Any] = None,
    sampler_logprobs: Optional[Any] = None,
    entropies: Optional[Any] = None,
    mask: Optional[Any] = None,
    **options: Any,
) -> Any: ...
def grpo_loss(
    logprobs: Array,
    advantages: Array,
    offsets: Array,
    *,
    old_logprobs: Optional[Any] = None,
    ref_logprobs: Optional[Any] = None,
    sampler_logprobs: Optional[Any] = None,
    entropies: Optional[Any] = None,
    mask: Optional[Any] = None,
    **options: Any,
) -> Any: ...
def compute_grpo_loss(
    policy_lps: Array, old_lps: Array, advantages: Array, offsets: Array, beta: float = 0.0, ref_lps: Optional[Any] = None, eps: float = 0.2
) -> Any: ...
def grpo_from_logits(
    logits: Array,
    ids: Array,
    advantages: Array,
    offsets: Array,
    *,
    old_logprobs: Optional[Any] = None,
    ref_logprobs: Optional[Any] = None,
    sampler_logprobs: Optional[Any] = None,
    mask: Optional[Any] = None,
    temperature: float = 1.0,
    softcap: float = 0.0,
    gradient: bool = True,
    out: Optional[Any] = None,
    **options: Any,
) -> Any: ...
def grpo_from_hidden(
    hidden: Array,
    weights: Array,
    ids: Array,
    advantages: Array,
    offsets: Array,
    *,
    old_logprobs: Optional[Any] = None,
    ref_logprobs: Optional[Any] = None,
    sampler_logprobs: Optional[Any] = None,
    mask: Optional[Any] = None,
    temperature: float = 1.0,
    softcap: float = 0.0,
    gradient: bool = True,
    **options: Any,
) -> GrpoFromHidden: ...
