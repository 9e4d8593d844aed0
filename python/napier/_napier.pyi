"""Types of the extension module. Array: a NumPy array, a PyTorch tensor, anything with DLPack or the buffer protocol, nested
lists; results are arrays of the first argument's kind."""

from typing import Any, Literal, Optional, final

Array = Any
DType = Any
Algorithm = Literal["auto", "safe", "online", "parallel"]
MaskedRows = Literal["nan", "zero"]
Isa = Literal["auto", "scalar", "neon", "avx2", "avx512"]

__version__: str
numerics_version: int

def __getattr__(name: str) -> Any: ...  # functions of the umap room: see napier.umap

# ---- Settings ----
def set_num_threads(threads: int, /) -> None: ...
def get_num_threads() -> int: ...
def set_isa(isa: Isa, /) -> None: ...
def get_isa() -> str: ...
def set_numerics(version: int, /) -> None: ...
def get_numerics() -> int: ...
def isa_available(isa: Isa, /) -> bool: ...
def release_memory() -> int: ...
def cuda_device_count() -> int: ...

# ---- softmax, log_softmax, logsumexp ----
def softmax(
    x: Array,
    axis: Optional[int | tuple[int, ...]] = -1,
    *,
    temperature: float = 1.0,
    algorithm: Algorithm = "auto",
    masked_rows: MaskedRows = "nan",
    dtype: Optional[DType] = None,
    out: Optional[Array] = None,
    mask: Optional[Array] = None,
    causal: bool = False,
) -> Any: ...
def log_softmax(
    x: Array,
    axis: Optional[int | tuple[int, ...]] = -1,
    *,
    temperature: float = 1.0,
    algorithm: Algorithm = "auto",
    masked_rows: MaskedRows = "nan",
    dtype: Optional[DType] = None,
    out: Optional[Array] = None,
    mask: Optional[Array] = None,
    causal: bool = False,
) -> Any: ...
def sparsemax(
    x: Array,
    axis: Optional[int | tuple[int, ...]] = -1,
    *,
    temperature: float = 1.0,
    algorithm: Algorithm = "auto",
    masked_rows: MaskedRows = "nan",
    dtype: Optional[DType] = None,
    out: Optional[Array] = None,
    mask: Optional[Array] = None,
    causal: bool = False,
) -> Any: ...
def logcumsumexp(x: Array, axis: int = -1, *, temperature: float = 1.0, dtype: Optional[DType] = None) -> Any: ...
def logcumsumexp_backward(x: Array, grad_lse: Array, axis: int = -1, *, temperature: float = 1.0) -> Any: ...
def logcumsumexp_tangent(x: Array, tangent: Array, axis: int = -1, *, temperature: float = 1.0) -> Any: ...
def logsumexp_all(x: Array, *, temperature: float = 1.0, dtype: Optional[DType] = None) -> Any: ...
def softmax_backward(
    probs: Array, grad_probs: Array, axis: Optional[int | tuple[int, ...]] = -1, *, temperature: float = 1.0, out: Optional[Array] = None
) -> Any: ...
def sparsemax_backward(
    probs: Array, grad_probs: Array, axis: Optional[int | tuple[int, ...]] = -1, *, temperature: float = 1.0, out: Optional[Array] = None
) -> Any: ...
def log_softmax_backward(
    logprobs: Array,
    grad_logprobs: Array,
    axis: Optional[int | tuple[int, ...]] = -1,
    *,
    temperature: float = 1.0,
    out: Optional[Array] = None,
) -> Any: ...
def logsumexp_backward(x: Array, grad_lse: Array, axis: Optional[int] = -1, *, temperature: float = 1.0) -> Any: ...
def logsumexp_all_backward(x: Array, grad_lse: Array, *, temperature: float = 1.0) -> Any: ...

@final
class SoftmaxState:
    def __new__(
        cls,
        dtype: DType = "float32",
        first_index: int = 0,
        *,
        temperature: float = 1.0,
        masked_rows: MaskedRows = "nan",
        weighted: bool = False,
    ) -> SoftmaxState: ...
    @property
    def first_index(self) -> int: ...
    @property
    def count(self) -> int: ...
    def update(self, block: Array, weights: Optional[Array] = None) -> SoftmaxState: ...
    def merge(self, other: SoftmaxState, /) -> SoftmaxState: ...
    def finish(self, *, return_sign: bool = False) -> Any: ...
    def apply(
        self,
        logits: Array,
        kind: Literal["softmax", "log_softmax"] = "softmax",
        *,
        dtype: Optional[DType] = None,
        out: Optional[Array] = None,
    ) -> Any: ...
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(data: Any, /) -> SoftmaxState: ...

# ---- Tokens, KL, rubric: napier.rl has the rest ----
def token_logprobs_backward(
    logits: Array,
    ids: Optional[Array] = None,
    temperature: float = 1.0,
    softcap: float = 0.0,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    keep: Optional[Array] = None,
    grad_logprobs: Optional[Array] = None,
    grad_lse: Optional[Array] = None,
    grad_entropy: Optional[Array] = None,
    grad_loss: Optional[Array] = None,
    out: Optional[Array] = None,
) -> Any: ...
def linear_token_logprobs_backward(
    hidden: Array,
    weights: Array,
    ids: Optional[Array] = None,
    temperature: float = 1.0,
    softcap: float = 0.0,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    keep: Optional[Array] = None,
    grad_logprobs: Optional[Array] = None,
    grad_lse: Optional[Array] = None,
    grad_entropy: Optional[Array] = None,
    grad_loss: Optional[Array] = None,
    *,
    bf16_gradient: bool = False,
    finals: Optional[Array] = None,
    chosen: Optional[Array] = None,
) -> tuple[Any, Any]: ...
def matmul(a: Array, b: Array, *, dtype: Optional[DType] = None, split: bool = False) -> Any: ...
def rotary_frequencies(
    dim: int,
    *,
    theta: float = 10000.0,
    scaling: Literal["default", "linear", "llama3", "yarn"] = "default",
    factor: float = 1.0,
    original_max_position_embeddings: int = 0,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    mscale: float = 0.0,
    mscale_all_dim: float = 0.0,
    attention_factor: float = 0.0,
    truncate: bool = True,
) -> tuple[Any, float]: ...
def gather_logprobs_backward(grad_gathered: Array, ids: Array, vocabulary: int) -> Any: ...
def kl_per_response_backward(
    policy_logprobs: Array,
    ref_logprobs: Array,
    offsets: Array,
    *,
    mask: Optional[Array] = None,
    estimator: Literal["k1", "k2", "k3"] = "k1",
    reduction: Literal["sum", "mean"] = "sum",
    clamp_ratio: float = 0.0,
    clamp_kl: float = 0.0,
    grad_kl: Array,
) -> tuple[Any, Any]: ...
def kl_full_backward(policy_logits: Array, ref_logits: Array, grad_kl: Array, *, temperature: float = 1.0) -> tuple[Any, Any]: ...
def grpo_token_loss_backward(
    logprobs: Array,
    advantages: Array,
    offsets: Array,
    old_logprobs: Optional[Array] = None,
    ref_logprobs: Optional[Array] = None,
    sampler_logprobs: Optional[Array] = None,
    entropies: Optional[Array] = None,
    mask: Optional[Array] = None,
    options: Optional[dict[str, Any]] = None,
    grad_losses: Optional[Array] = None,
) -> Any: ...
def rubric_score_backward(
    token_ids: Array,
    offsets: Array,
    rubric: Array,
    weights: Array,
    grad_scores: Optional[Array] = None,
    grad_rewards: Optional[Array] = None,
) -> Any: ...
