"""Types of napier. Array: as in _napier.pyi."""

from typing import Any, Optional

from . import hf as hf, rl as rl, torch as torch, umap as umap
from ._audit.run import audit as audit
from ._lm.causal_lm import CausalLM as CausalLM, Tokenizer as Tokenizer
from ._napier import (
    SoftmaxState as SoftmaxState,
    __version__ as __version__,
    cuda_device_count as cuda_device_count,
    get_isa as get_isa,
    get_num_threads as get_num_threads,
    get_numerics as get_numerics,
    isa_available as isa_available,
    logcumsumexp as logcumsumexp,
    logcumsumexp_backward as logcumsumexp_backward,
    logcumsumexp_tangent as logcumsumexp_tangent,
    log_softmax as log_softmax,
    log_softmax_backward as log_softmax_backward,
    logsumexp_all as logsumexp_all,
    logsumexp_all_backward as logsumexp_all_backward,
    logsumexp_backward as logsumexp_backward,
    matmul as matmul,
    numerics_version as numerics_version,
    release_memory as release_memory,
    rotary_frequencies as rotary_frequencies,
    set_isa as set_isa,
    set_num_threads as set_num_threads,
    set_numerics as set_numerics,
    softmax as softmax,
    softmax_backward as softmax_backward,
    sparsemax as sparsemax,
    sparsemax_backward as sparsemax_backward,
)
from ._ops.attention import attention as attention, attention_backward as attention_backward
from ._ops.entmax import entmax as entmax
from ._ops.layers import (
    rms_norm as rms_norm,
    rms_norm_backward as rms_norm_backward,
    rotary as rotary,
    rotary_angles as rotary_angles,
    rotary_backward as rotary_backward,
    swiglu as swiglu,
    swiglu_backward as swiglu_backward,
)
from ._ops.logsumexp import logsumexp as logsumexp
from ._ops.losses import cross_entropy as cross_entropy, gumbel_softmax as gumbel_softmax, logaddexp as logaddexp
from ._config import show_config as show_config
from ._progress import progress as progress
from ._umap.estimator import UMAP as UMAP
from .rl import (
    compute_grpo_loss as compute_grpo_loss,
    compute_kl as compute_kl,
    gather_logprobs as gather_logprobs,
    group_advantages as group_advantages,
    grpo_from_hidden as grpo_from_hidden,
    grpo_from_logits as grpo_from_logits,
    grpo_loss as grpo_loss,
    grpo_token_loss as grpo_token_loss,
    kl_full as kl_full,
    kl_per_response as kl_per_response,
    linear_token_logprobs as linear_token_logprobs,
    rubric_score as rubric_score,
    sample as sample,
    token_logprobs as token_logprobs,
)

fused_log_softmax = log_softmax
Qwen3 = CausalLM

def safe_softmax(x: Any, axis: Optional[int | tuple[int, ...]] = -1, **options: Any) -> Any: ...
def online_softmax(x: Any, axis: Optional[int | tuple[int, ...]] = -1, **options: Any) -> Any: ...
def reduce_softmax(x: Any, axis: Optional[int | tuple[int, ...]] = -1, **options: Any) -> Any: ...

__all__ = [
    "softmax",
    "log_softmax",
    "logsumexp",
    "token_logprobs",
    "UMAP",
    "CausalLM",
    "SoftmaxState",
    "Tokenizer",
    "attention",
    "attention_backward",
    "audit",
    "compute_grpo_loss",
    "compute_kl",
    "cross_entropy",
    "cuda_device_count",
    "entmax",
    "fused_log_softmax",
    "gather_logprobs",
    "get_isa",
    "get_num_threads",
    "get_numerics",
    "group_advantages",
    "grpo_from_hidden",
    "grpo_from_logits",
    "grpo_loss",
    "grpo_token_loss",
    "gumbel_softmax",
    "isa_available",
    "kl_full",
    "kl_per_response",
    "linear_token_logprobs",
    "log_softmax_backward",
    "logaddexp",
    "logcumsumexp",
    "logcumsumexp_backward",
    "logcumsumexp_tangent",
    "logsumexp_all",
    "logsumexp_all_backward",
    "logsumexp_backward",
    "matmul",
    "numerics_version",
    "online_softmax",
    "progress",
    "reduce_softmax",
    "release_memory",
    "rl",
    "rms_norm",
    "rms_norm_backward",
    "rotary",
    "rotary_angles",
    "rotary_backward",
    "rotary_frequencies",
    "rubric_score",
    "safe_softmax",
    "sample",
    "set_isa",
    "set_num_threads",
    "set_numerics",
    "show_config",
    "softmax_backward",
    "sparsemax",
    "sparsemax_backward",
    "swiglu",
    "swiglu_backward",
    "umap",
]
