"""Types of napier.torch. Array: as in _napier.pyi."""

from typing import Any, Optional, TypeAlias

import torch

from ..rl import Sampled as Sampled, TokenLogprobs as TokenLogprobs

__all__ = [
    "LogSoftmax",
    "LogSumExp",
    "Softmax",
    "attention",
    "compute_grpo_loss",
    "cross_entropy",
    "entmax",
    "fused_log_softmax",
    "gather_logprobs",
    "group_advantages",
    "grpo_from_hidden",
    "grpo_from_logits",
    "grpo_loss",
    "grpo_token_loss",
    "gumbel_softmax",
    "kl_full",
    "kl_per_response",
    "linear",
    "linear_token_logprobs",
    "log_softmax",
    "logaddexp",
    "logcumsumexp",
    "logsumexp",
    "matmul",
    "online_softmax",
    "reduce_softmax",
    "rms_norm",
    "rotary",
    "rotary_angles",
    "rotary_frequencies",
    "rubric_score",
    "safe_softmax",
    "sample",
    "scaled_dot_product_attention",
    "softmax",
    "sparsemax",
    "swiglu",
    "synchronize",
    "token_logprobs",
]

Array: TypeAlias = torch.Tensor
Number: TypeAlias = float | torch.Tensor

def synchronize(device: Any = None) -> None: ...
def softmax(
    input: Array,
    dim: int = -1,
    dtype: Optional[torch.dtype] = None,
    *,
    mask: Optional[Any] = None,
    causal: bool = False,
    temperature: Number = 1.0,
    masked_rows: str = "nan",
    algorithm: str = "auto",
) -> Any: ...
def sparsemax(
    input: Array,
    dim: int = -1,
    dtype: Optional[torch.dtype] = None,
    *,
    mask: Optional[Any] = None,
    causal: bool = False,
    temperature: Number = 1.0,
    masked_rows: str = "nan",
    algorithm: str = "auto",
) -> Any: ...
def log_softmax(
    input: Array,
    dim: int = -1,
    dtype: Optional[torch.dtype] = None,
    *,
    mask: Optional[Any] = None,
    causal: bool = False,
    temperature: Number = 1.0,
    masked_rows: str = "nan",
    algorithm: str = "auto",
) -> Any: ...
def fused_log_softmax(
    input: Array,
    dim: int = -1,
    dtype: Optional[torch.dtype] = None,
    *,
    mask: Optional[Any] = None,
    causal: bool = False,
    temperature: Number = 1.0,
    masked_rows: str = "nan",
    algorithm: str = "auto",
) -> Any: ...
def safe_softmax(input: Array, dim: int = -1, **options: Any) -> Any: ...
def online_softmax(input: Array, dim: int = -1, **options: Any) -> Any: ...
def reduce_softmax(input: Array, dim: int = -1, **options: Any) -> Any: ...
def entmax(
    input: Array,
    dim: int = -1,
    dtype: Optional[torch.dtype] = None,
    *,
    alpha: float = 1.5,
    mask: Optional[Any] = None,
    causal: bool = False,
    temperature: Number = 1.0,
    masked_rows: str = "nan",
) -> Any: ...
def gumbel_softmax(logits: Array, tau: Number = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any: ...
def logsumexp(
    input: Array,
    dim: Optional[int | tuple[int, ...]] = None,
    keepdim: bool = False,
    *,
    mask: Optional[Any] = None,
    causal: bool = False,
    b: Optional[Any] = None,
    return_sign: bool = False,
    temperature: Number = 1.0,
    algorithm: str = "auto",
) -> Any: ...
def logaddexp(input: Any, other: Any) -> Any: ...
def logcumsumexp(input: Array, dim: int = -1, *, temperature: Number = 1.0) -> Any: ...
def cross_entropy(
    input: Array,
    target: Any,
    weight: Optional[Any] = None,
    size_average: Optional[bool] = None,
    ignore_index: int = -100,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any: ...

class Softmax(torch.nn.Module):
    def __init__(self, dim: int = -1, temperature: Number = 1.0, masked_rows: str = "nan") -> None: ...
    def forward(self, x: Array, mask: Optional[Any] = None) -> Any: ...
    def extra_repr(self) -> str: ...

class LogSoftmax(Softmax): ...

class LogSumExp(torch.nn.Module):
    def __init__(self, dim: int = -1, keepdim: bool = False, temperature: Number = 1.0) -> None: ...
    def forward(self, x: Array, mask: Optional[Any] = None) -> Any: ...
    def extra_repr(self) -> str: ...

def matmul(a: Array, b: Array) -> Any: ...
def linear(x: Array, weight: Array, bias: Optional[Array] = None, *, compute: str = "f32", bf16_gradient: bool = False) -> Any: ...
def rms_norm(x: Array, weight: Array, *, epsilon: Number = 1e-6, dtype: Optional[torch.dtype] = None) -> Any: ...
def swiglu(gate: Array, up: Array, *, dtype: Optional[torch.dtype] = None) -> Any: ...
def rotary(x: Array, cosines: Array, sines: Array, *, dtype: Optional[torch.dtype] = None) -> Any: ...
def rotary_angles(positions: Any, inverse: Any, scale: Number = 1.0) -> tuple[Any, Any]: ...
def rotary_frequencies(dim: int, **options: Any) -> tuple[Any, float]: ...
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Optional[Any] = None,
    causal: bool = False,
    scale: Optional[Number] = None,
    masked_rows: str = "nan",
    query_offsets: Optional[Any] = None,
    key_offsets: Optional[Any] = None,
    prefix: Optional[tuple[Array, Array]] = None,
    return_lse: bool = False,
    bf16_weights: bool = False,
    bf16_gradient: bool = False,
) -> Any: ...
def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Optional[Array] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Any: ...
def token_logprobs(
    logits: Array,
    ids: Optional[Any] = None,
    *,
    temperature: Number = 1.0,
    softcap: Number = 0.0,
    ignore_index: int = -100,
    label_smoothing: Number = 0.0,
    z_loss: Number = 0.0,
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
    temperature: Number = 1.0,
    softcap: Number = 0.0,
    ignore_index: int = -100,
    label_smoothing: Number = 0.0,
    z_loss: Number = 0.0,
    keep: Optional[Any] = None,
    lse: bool = False,
    entropy: bool = False,
    loss: bool = False,
    argmax: bool = False,
    rank: bool = False,
    top_k: int = 0,
    bf16_gradient: bool = False,
) -> TokenLogprobs: ...
def sample(
    logits: Array,
    *,
    temperature: Number = 1.0,
    top_k: int = 0,
    top_p: Number = 1.0,
    min_p: Number = 0.0,
    repetition_penalty: Number = 1.0,
    presence_penalty: Number = 0.0,
    frequency_penalty: Number = 0.0,
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
    offsets: Optional[Any] = None,
    *,
    mask: Optional[Any] = None,
    estimator: str = "k1",
    reduction: str = "sum",
    clamp_ratio: Number = 0.0,
    clamp_kl: Number = 0.0,
) -> Any: ...
def kl_full(policy_logits: Array, ref_logits: Array, *, temperature: Number = 1.0) -> Any: ...
def rubric_score(
    logprobs: Array, token_ids: Array, offsets: Optional[Any], rubric: Array, weights: Array, *, mask: Optional[Any] = None
) -> tuple[Any, Any]: ...
def grpo_loss(
    logprobs: Array,
    advantages: Array,
    offsets: Optional[Any] = None,
    *,
    old_logprobs: Optional[Any] = None,
    ref_logprobs: Optional[Any] = None,
    sampler_logprobs: Optional[Any] = None,
    entropies: Optional[Any] = None,
    mask: Optional[Any] = None,
    **options: Any,
) -> Any: ...
def grpo_token_loss(
    logprobs: Array,
    advantages: Array,
    offsets: Optional[Any] = None,
    *,
    old_logprobs: Optional[Any] = None,
    ref_logprobs: Optional[Any] = None,
    sampler_logprobs: Optional[Any] = None,
    entropies: Optional[Any] = None,
    mask: Optional[Any] = None,
    **options: Any,
) -> Any: ...
def compute_grpo_loss(
    policy_lps: Array,
    old_lps: Array,
    advantages: Array,
    offsets: Optional[Any] = None,
    beta: Number = 0.0,
    ref_lps: Optional[Any] = None,
    eps: Number = 0.2,
    *,
    mask: Optional[Any] = None,
) -> Any: ...
def group_advantages(rewards: Array, groups: Any, *, scale: str = "group", epsilon: Number = 1e-4) -> Any: ...
def grpo_from_hidden(
    hidden: Array,
    weights: Array,
    ids: Array,
    advantages: Array,
    offsets: Optional[Any] = None,
    *,
    old_logprobs: Optional[Any] = None,
    ref_logprobs: Optional[Any] = None,
    sampler_logprobs: Optional[Any] = None,
    mask: Optional[Any] = None,
    temperature: Number = 1.0,
    softcap: Number = 0.0,
    bf16_gradient: bool = False,
    **options: Any,
) -> Any: ...
def grpo_from_logits(
    logits: Array,
    ids: Array,
    advantages: Array,
    offsets: Optional[Any] = None,
    *,
    old_logprobs: Optional[Any] = None,
    ref_logprobs: Optional[Any] = None,
    sampler_logprobs: Optional[Any] = None,
    mask: Optional[Any] = None,
    temperature: Number = 1.0,
    softcap: Number = 0.0,
    **options: Any,
) -> Any: ...
