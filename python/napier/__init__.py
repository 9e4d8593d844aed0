"""Napier: safe computing with exponentials. It has softmax, log_softmax and logsumexp, UMAP maps of data, and
log-probabilities, KL and GRPO losses for post-training of language models. Results are right for every input and have
the same bits on every machine.

Functions take NumPy arrays, PyTorch tensors, anything else with the buffer protocol or DLPack, and, if napier was built
with CUDA, tensors and CuPy's arrays on a GPU, without copies. They return the same kind of array. See `napier.rl`, `napier.torch`
(autograd) and `napier.UMAP`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from . import rl
from ._ops.attention import attention, attention_backward
from ._ops.layers import rms_norm, rms_norm_backward, rotary, rotary_angles, rotary_backward, swiglu, swiglu_backward
from ._ops.logsumexp import logsumexp
from ._ops.losses import cross_entropy, gumbel_softmax
from ._napier import (
    SoftmaxState,
    __version__ as __version__,
    cuda_device_count,
    get_isa,
    get_num_threads,
    get_numerics,
    isa_available,
    log_softmax,
    log_softmax_backward,
    logcumsumexp,
    logcumsumexp_backward,
    logcumsumexp_tangent,
    logsumexp_all,
    logsumexp_all_backward,
    logsumexp_backward,
    matmul,
    numerics_version,
    release_memory,
    rotary_frequencies,
    set_isa,
    set_num_threads,
    set_numerics,
    softmax,
    softmax_backward,
    sparsemax,
    sparsemax_backward,
)
from ._config import show_config
from ._progress import progress
from .rl import (
    compute_grpo_loss,
    compute_kl,
    gather_logprobs,
    group_advantages,
    grpo_from_hidden,
    grpo_from_logits,
    grpo_loss,
    grpo_token_loss,
    kl_full,
    kl_per_response,
    linear_token_logprobs,
    rubric_score,
    sample,
    token_logprobs,
)

fused_log_softmax = log_softmax


def safe_softmax(x: Any, axis: Optional[int | tuple[int, ...]] = -1, **options: Any) -> Any:
    """softmax in three passes over a row: maximum, sum, result. The bits are those of `softmax`.

    Examples
    --------
    >>> import napier
    >>> napier.safe_softmax([0.0, 0.0, -1e30]).tolist()
    [0.5, 0.5, 0.0]
    """
    return softmax(x, axis, algorithm="safe", **options)


def online_softmax(x: Any, axis: Optional[int | tuple[int, ...]] = -1, **options: Any) -> Any:
    """softmax in two passes over a row: maximum and sum together, then the result. The bits are those of `softmax`.

    Examples
    --------
    >>> import napier
    >>> napier.online_softmax([0.0, 0.0, -1e30]).tolist()
    [0.5, 0.5, 0.0]
    """
    return softmax(x, axis, algorithm="online", **options)


def reduce_softmax(x: Any, axis: Optional[int | tuple[int, ...]] = -1, **options: Any) -> Any:
    """softmax with every row split over all threads. The bits are those of `softmax`.

    Examples
    --------
    >>> import napier
    >>> napier.reduce_softmax([0.0, 0.0, -1e30]).tolist()
    [0.5, 0.5, 0.0]
    """
    return softmax(x, axis, algorithm="parallel", **options)


# Imported on first use: the estimator imports scikit-learn if it is installed.
_LAZY = {"CausalLM": "_lm.causal_lm", "Tokenizer": "_lm.causal_lm", "UMAP": "_umap.estimator", "audit": "_audit.run", "umap": "umap"}

# Earlier names (docs/upgrading.md). The first use warns.
_RENAMED = {"Qwen3": "CausalLM"}


if TYPE_CHECKING:
    from . import hf, torch, umap
    from ._audit.run import audit
    from ._lm.causal_lm import CausalLM, Tokenizer
    from ._ops.entmax import entmax
    from ._ops.losses import logaddexp
    from ._umap.estimator import UMAP

    Qwen3 = CausalLM
else:
    from ._tensors import entmax, logaddexp

    def __getattr__(name):
        import importlib

        if name in _RENAMED:
            import warnings

            warnings.warn(f"napier.{name} is now napier.{_RENAMED[name]}", DeprecationWarning, stacklevel=2)
            globals()[name] = __getattr__(_RENAMED[name])
            return globals()[name]

        if name in ("hf", "torch"):
            try:
                return importlib.import_module("." + name, __name__)
            except ImportError as error:
                raise AttributeError(f"napier.{name}: {error}") from error
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module("." + _LAZY[name], __name__)
        return module if name == _LAZY[name] else getattr(module, name)


def __dir__():
    return sorted(set(globals()) | set(_LAZY))


# The site's page has this order.
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
