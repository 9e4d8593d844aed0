"""Log-probabilities of tokens, KL, rubric scores and the GRPO family of losses, for post-training of language models.

Responses are ragged: token arrays hold all tokens of all responses, and response i has the tokens offsets[i] to
offsets[i + 1] - 1. Arithmetic is float32; float64 arrays are rounded to it. The log-probability of a token has the same bits
by every route. For gradients use napier.torch, or the functions *_backward.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _napier
from ._napier import (
    gather_logprobs_backward,
    grpo_token_loss as _grpo_token_loss,
    grpo_token_loss_backward,
    kl_full as _kl_full,
    kl_full_backward,
    kl_per_response as _kl_per_response,
    kl_per_response_backward,
    linear_token_logprobs_backward,
    rubric_score as _rubric_score,
    rubric_score_backward,
    token_logprobs_backward,
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


class TokenLogprobs(NamedTuple):
    """The results of one read of each row of logits. None: not requested."""

    logprobs: Any = None
    lse: Any = None
    entropy: Any = None
    loss: Any = None
    argmax: Any = None
    rank: Any = None
    top_ids: Any = None
    top_logprobs: Any = None


def _array(x):
    if hasattr(x, "reshape"):
        return x
    import numpy as np

    return np.asarray(x)


def _want(lse, entropy, loss, argmax, rank):
    """The bit mask that tells C which results are wanted."""
    return bool(lse) | bool(entropy) << 1 | bool(loss) << 2 | bool(argmax) << 3 | bool(rank) << 4


def _shaped(results, lead, ids):
    """Reshapes results of rows to the leading dimensions. One id per row has no dimension of its own."""
    logprobs, lse, entropy, loss, argmax, rank, top_ids, top_logprobs = results[:8]
    each = () if ids is None or tuple(ids.shape) == lead else tuple(ids.shape)[len(lead) :]

    def as_(value, shape):
        return value if value is None or value.shape == shape else value.reshape(shape)

    def top(value):
        return None if value is None else as_(value, lead + (value.shape[-1],))

    return TokenLogprobs(
        as_(logprobs, lead + each),
        as_(lse, lead),
        as_(entropy, lead),
        as_(loss, lead),
        as_(argmax, lead),
        as_(rank, lead + each),
        top(top_ids),
        top(top_logprobs),
    )


def _without_rows(results, rows, ids):
    """Adds an empty array of log-probabilities if there are no rows. C returns none, since it cannot tell how many ids a row
    would have."""
    if rows.shape[0] or ids is None:
        return results
    none = _napier.token_logprobs(rows, None, want=1)[1]
    return (none,) + tuple(results[1:])


def _token_arguments(x, ids, keep, what):
    """Returns rows, ids and keep as matrices, and the leading dimensions."""
    x = _array(x)
    if len(x.shape) < 1:
        raise ValueError(f"{what}: expected at least 1 dimension")
    lead = tuple(x.shape[:-1])
    if ids is not None:
        ids = _array(ids)
        if tuple(ids.shape)[: len(lead)] != lead or len(ids.shape) > len(lead) + 1:
            raise ValueError(f"ids: shape {tuple(ids.shape)} does not begin with the leading dimensions {lead}")
    if keep is not None:
        keep = _array(keep)
        if len(keep.shape) > 1:
            keep = keep.reshape(-1, keep.shape[-1])
    rows = x if len(lead) == 1 else x.reshape(_size(lead), x.shape[-1])
    return rows, ids, keep, lead


def _size(shape):
    n = 1
    for i in shape:
        n *= i
    return n


def token_logprobs(
    logits: Any,
    ids: Any = None,
    *,
    temperature: float = 1.0,
    softcap: float = 0.0,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    keep: Any = None,
    lse: bool = False,
    entropy: bool = False,
    loss: bool = False,
    argmax: bool = False,
    rank: bool = False,
    top_k: int = 0,
) -> TokenLogprobs:
    """Log-probabilities of chosen tokens, and other requested results, from one read of each row of logits.

    Parameters
    ----------
    logits : [..., V] float32, float16 or bfloat16
    ids : [...] or [..., K] integers, optional
    temperature : float, > 0
    softcap : float; 0: none. Otherwise logits first become softcap * tanh(logits / softcap)
    ignore_index : an id with this value gets log-probability 0
    label_smoothing, z_loss : affect only `loss`
    keep : bool [V] or [..., V], optional
        The kept set, as after a top-k or top-p filter. Probabilities are renormalised over it.
    lse, entropy, loss, argmax, rank : bool
        The results to return besides the log-probabilities.
    top_k : int
        Return the ids and log-probabilities of this number of most likely tokens.

    Returns
    -------
    TokenLogprobs : a named tuple of float32 and int64 arrays. Results that were not requested are None.

    Examples
    --------
    >>> import numpy as np, napier
    >>> logits = np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 5.0]], dtype=np.float32)
    >>> t = napier.token_logprobs(logits, [0, 1], entropy=True, argmax=True)
    >>> [round(x, 3) for x in t.logprobs.tolist()], t.argmax.tolist()
    ([-0.408, -5.013], [0, 2])
    """
    rows, ids, keep, lead = _token_arguments(logits, ids, keep, "logits")
    results = _napier.token_logprobs(
        rows, ids, temperature, softcap, ignore_index, label_smoothing, z_loss, keep, _want(lse, entropy, loss, argmax, rank), top_k
    )
    return _shaped(_without_rows(results, rows, ids), lead, ids)


def linear_token_logprobs(
    hidden: Any,
    weights: Any,
    ids: Any = None,
    *,
    temperature: float = 1.0,
    softcap: float = 0.0,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    keep: Any = None,
    lse: bool = False,
    entropy: bool = False,
    loss: bool = False,
    argmax: bool = False,
    rank: bool = False,
    top_k: int = 0,
    split: bool = False,
) -> TokenLogprobs:
    """token_logprobs of hidden @ weights.T, without storing the logits.

    hidden is [..., H], weights is [V, H]; the rest is as in token_logprobs. Memory besides the results: at most about 256 MB.
    split: the product is that of matmul with split, as in a CausalLM with compute="split"; weights are bfloat16.

    Examples
    --------
    >>> import numpy as np, napier
    >>> hidden, weights = np.array([[1, 0], [0, 1]], np.float32), np.array([[0, 1], [1, 0], [2, 0]], np.float32)
    >>> t = napier.linear_token_logprobs(hidden, weights, [2, 0], argmax=True)
    >>> t.logprobs.round(3), t.argmax.tolist()
    (array([-0.408, -0.551], dtype=float32), [2, 0])
    """
    rows, ids, keep, lead = _token_arguments(hidden, ids, keep, "hidden")
    results = _napier.linear_token_logprobs(
        rows,
        weights,
        ids,
        temperature,
        softcap,
        ignore_index,
        label_smoothing,
        z_loss,
        keep,
        _want(lse, entropy, loss, argmax, rank),
        top_k,
        split,
    )
    return _shaped(_without_rows(results, rows, ids), lead, ids)


class Sampled(NamedTuple):
    """One drawn id for each row of logits, and its log-probabilities: under the distribution that it was drawn from, and under
    the softmax of logits / temperature."""

    ids: Any
    logprobs: Any
    plain_logprobs: Any


def _ragged(name, rows, offsets):
    """Ids of all rows as one array, and offsets. Without offsets, rows has one sequence for each row of logits."""
    if rows is None or offsets is not None:
        return rows, offsets
    import numpy as np

    rows = [np.asarray(row).reshape(-1) for row in rows]
    if any(row.size and row.dtype.kind not in "iu" for row in rows):
        raise TypeError(f"{name}: expected integers")
    sizes = np.array([0] + [row.size for row in rows], dtype=np.int64)
    return np.concatenate([np.empty(0, np.int64)] + [row.astype(np.int64) for row in rows]), sizes.cumsum()


def _flat(x):
    """Integers for each row as one dimension, and None as None."""
    return x if x is None else _array(x).reshape(-1)


def _seeds(seed):
    """A seed for all rows, or seeds of rows. Of an integer its lower 64 bits count."""
    if isinstance(seed, int) or getattr(seed, "shape", None) == ():
        return (int(seed) + 2**63) % 2**64 - 2**63, None
    return 0, _flat(seed)


def sample(
    logits: Any,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    keep: Any = None,
    prompts: Any = None,
    prompt_offsets: Any = None,
    outputs: Any = None,
    output_offsets: Any = None,
    seed: Any = 0,
    samples: Any = None,
    positions: Any = None,
) -> Sampled:
    """Draws one token id for each row of logits, and gives its log-probabilities.

    The id is a function of the row, the options, and (seed, sample, position): not of the batch, threads or machine. The
    log-probabilities have the bits of token_logprobs.

    Parameters
    ----------
    logits : [..., V] float32, float16 or bfloat16
    temperature : float; 0: the largest logit (the lowest id of equal ones)
    top_k : int; 0: no limit. Exactly top_k ids are kept; of equal logits those with the lower ids
    top_p : float in (0, 1]; keeps the fewest most likely ids whose probability, after top_k, is at least top_p
    min_p : float in [0, 1]; keeps ids with at least min_p times the largest probability
    repetition_penalty : float, > 0; for ids in prompts and outputs, as in Hugging Face and vLLM
    presence_penalty, frequency_penalty : float; for ids in outputs, as in vLLM and OpenAI
    keep : bool [V] or [..., V], optional; False forbids an id
    prompts, outputs : one sequence of ids for each row; or, with prompt_offsets or output_offsets, the ids of all rows in one
        array. outputs are the tokens that have been generated so far
    seed : int, or integers [...]
    samples : integers [...], the number of the sample that a row belongs to; default: the row's index
    positions : integers [...], the position of the drawn token in its sample; default: 0

    Returns
    -------
    Sampled : (ids, logprobs, plain_logprobs), each [...]

    Examples
    --------
    >>> import numpy as np, napier
    >>> logits = np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 5.0]], dtype=np.float32)
    >>> s = napier.sample(logits, temperature=0.8, top_p=0.9, seed=7, samples=[0, 1], positions=[3, 3])
    >>> s.ids.tolist(), [round(x, 3) for x in s.plain_logprobs.tolist()]
    ([0, 2], [-0.314, -0.004])
    >>> napier.sample(logits, temperature=0).ids.tolist()
    [0, 2]
    """
    rows, _, keep, lead = _token_arguments(logits, None, keep, "logits")
    prompts, prompt_offsets = _ragged("prompts", prompts, prompt_offsets)
    outputs, output_offsets = _ragged("outputs", outputs, output_offsets)
    seed, seeds = _seeds(seed)
    results = _napier.sample(
        rows,
        temperature,
        top_k,
        top_p,
        min_p,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
        keep,
        prompts,
        prompt_offsets,
        outputs,
        output_offsets,
        seed,
        seeds,
        _flat(samples),
        _flat(positions),
    )
    return Sampled(*(x if tuple(x.shape) == lead else x.reshape(lead) for x in results))


def gather_logprobs(logprobs: Any, ids: Any) -> Any:
    """logprobs[..., ids]: the chosen element of each row of log-probabilities [..., V], for ids [...].

    Examples
    --------
    >>> import napier
    >>> logprobs = napier.log_softmax([[0.0, 0.0], [0.0, -1e30]])
    >>> napier.gather_logprobs(logprobs, [1, 0]).round(4)
    array([-0.6931,  0.    ], dtype=float32)
    """
    logprobs, ids = _array(logprobs), _array(ids)
    if tuple(ids.shape) != tuple(logprobs.shape[:-1]):
        raise ValueError(f"ids: shape {tuple(ids.shape)} is not that of logprobs without its last dimension")
    return _napier.gather_logprobs(logprobs.reshape(-1, logprobs.shape[-1]), ids).reshape(tuple(ids.shape))


# ---- KL and rubric -----------------------------------------------------------------------------------------------------


def kl_per_response(
    policy_logprobs: Any,
    ref_logprobs: Any,
    offsets: Any,
    *,
    mask: Any = None,
    estimator: str = "k1",
    reduction: str = "sum",
    clamp_ratio: float = 0.0,
    clamp_kl: float = 0.0,
) -> Any:
    """KL of each response from the log-probabilities of its tokens: [B].

    With d = ref - policy, estimator 'k1' is -d, 'k2' is d**2 / 2 and 'k3' is exp(d) - d - 1. reduction is 'sum' or 'mean'. The
    KL of a policy with itself is exactly 0.

    Examples
    --------
    >>> import napier
    >>> napier.kl_per_response([-1.0, -2.0, -0.5], [-1.5, -2.0, -0.5], [0, 2, 3]).tolist()
    [0.5, 0.0]
    """
    return _kl_per_response(
        policy_logprobs,
        ref_logprobs,
        offsets,
        mask=mask,
        estimator=estimator,
        reduction=reduction,
        clamp_ratio=clamp_ratio,
        clamp_kl=clamp_kl,
    )


compute_kl = kl_per_response


def kl_full(policy_logits: Any, ref_logits: Any, *, temperature: float = 1.0) -> Any:
    """The exact KL over the vocabulary of each row of two matrices of logits [N, V]: [N], exactly 0 for equal rows.

    Examples
    --------
    >>> import napier
    >>> napier.kl_full([[0.0, 0.0], [1.0, 5.0]], [[1.0, 0.0], [1.0, 5.0]]).round(4)
    array([0.1201, 0.    ], dtype=float32)
    """
    return _kl_full(policy_logits, ref_logits, temperature=temperature)


def rubric_score(logprobs: Any, token_ids: Any, offsets: Any, rubric: Any, weights: Any) -> Any:
    """Returns (scores [B, C], rewards [B]). A score is weights[c] * sum of logprobs * rubric[c, token id] over the tokens of a
    response, and a reward is the sum of scores over criteria. rubric is [C, V], weights is [C].

    Examples
    --------
    >>> import napier
    >>> logprobs, ids, offsets = [-1.0, -2.0, -0.5], [3, 1, 3], [0, 2, 3]
    >>> scores, rewards = napier.rubric_score(logprobs, ids, offsets, rubric=[[0, 0, 0, 1.0]], weights=[2.0])
    >>> rewards.tolist()
    [-2.0, -1.0]
    """
    return _rubric_score(logprobs, token_ids, offsets, rubric, weights)


# ---- GRPO --------------------------------------------------------------------------------------------------------------


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


def group_advantages(rewards: Any, groups: Any, *, scale: str = "group", epsilon: float = 1e-4) -> Any:
    """Advantages [B]: rewards [B] less the mean of their group, divided by a deviation plus epsilon.

    Parameters
    ----------
    rewards : [B] float32, float16 or bfloat16
        NaN for a sample that nothing could score: it counts in no mean, and its advantage is 0, as in TRL.
    groups : int, or [G + 1] integers
        The number of rewards of each group, or offsets: group g has the rewards groups[g] to groups[g + 1] - 1.
    scale : 'group', 'batch' or 'none'
        The standard deviation of the group, that of all rewards, or no division.

    Examples
    --------
    >>> import napier
    >>> [round(x, 3) for x in napier.group_advantages([1.0, 0.0, 0.0, 1.0, 1.0, 1.0], 3).tolist()]
    [1.155, -0.577, -0.577, 0.0, 0.0, 0.0]
    """
    size, offsets = _groups(groups)
    return _napier.group_advantages(rewards, size, offsets, scale, epsilon)


def _groups(groups):
    """(size, offsets), of which one is given."""
    return (int(groups), None) if getattr(groups, "shape", None) == () or isinstance(groups, int) else (0, groups)


def grpo_token_loss(
    logprobs: Any,
    advantages: Any,
    offsets: Any,
    *,
    old_logprobs: Any = None,
    ref_logprobs: Any = None,
    sampler_logprobs: Any = None,
    entropies: Any = None,
    mask: Any = None,
    **options: Any,
) -> Any:
    """Returns (losses [T], grad_logprobs [T]): each token's loss before reduction, and the derivative of the sum of losses.
    Options are as in grpo_loss.

    Examples
    --------
    >>> import napier
    >>> losses, slopes = napier.grpo_token_loss([-1.0, -2.0, -0.5], [1.0, -1.0], [0, 2, 3],
    ...                                         old_logprobs=[-1.0, -2.5, -0.5])
    >>> losses.round(4), slopes
    (array([-1. , -1.2,  1. ], dtype=float32), array([-1.,  0.,  1.], dtype=float32))
    """
    return _grpo_token_loss(logprobs, advantages, offsets, old_logprobs, ref_logprobs, sampler_logprobs, entropies, mask, options)


def grpo_loss(
    logprobs: Any,
    advantages: Any,
    offsets: Any,
    *,
    old_logprobs: Any = None,
    ref_logprobs: Any = None,
    sampler_logprobs: Any = None,
    entropies: Any = None,
    mask: Any = None,
    **options: Any,
) -> Any:
    """The GRPO loss and its gradients, as TRL's GRPOTrainer computes it.

    Parameters
    ----------
    logprobs : [T] of the policy
    advantages : [B], or [T]
    offsets : [B + 1] integers
        Means over responses leave out a response without tokens, but not a fully masked row of a padded batch.
        count_empty_responses=True counts it, as TRL does.
    old_logprobs, ref_logprobs, sampler_logprobs, entropies : [T], optional
        Without old_logprobs the step is on-policy. beta needs ref_logprobs; the correction and the off-policy mask use
        sampler_logprobs.
    mask : bool [T], optional
    **options
        loss_type : 'grpo', 'bnpo', 'dr_grpo', 'dapo', 'gspo', 'cispo', 'sapo', 'vespo', 'luspo', 'token_mean'
        level : 'token' or 'sequence'
        epsilon (0.2), epsilon_high, delta, beta (0), kl_estimator ('k3'), kl_bias_correction, sapo_tau_positive,
        sapo_tau_negative, vespo_k_positive, vespo_lambda_positive, vespo_k_negative, vespo_lambda_negative,
        max_completion_length, num_items, correction ('none', 'token_truncate', 'token_mask', 'sequence_truncate',
        'sequence_mask'), correction_cap (3), correction_floor, top_entropy_quantile (1), entropy_coefficient (0),
        off_policy_threshold, count_empty_responses (False), entropy_threshold : see docs/rl.md and napier/rl.h.
        entropy_threshold is the value of the quantile, in place of top_entropy_quantile, if it is taken over several
        processes.

    Returns
    -------
    GrpoLoss : loss, metrics (a dict), grad_logprobs [T], grad_entropies [T] or None

    Examples
    --------
    >>> import napier
    >>> loss, metrics, grad_logprobs, _ = napier.grpo_loss([-1.0, -2.0, -0.5], [1.0, -1.0], [0, 2, 3],
    ...                                                    old_logprobs=[-1.0, -2.5, -0.5])
    >>> round(loss, 4), metrics["tokens"], grad_logprobs.tolist()
    (-0.05, 3.0, [-0.25, 0.0, 0.5])
    """
    metrics, grad_logprobs, grad_entropies = _napier.grpo_loss(
        logprobs, advantages, offsets, old_logprobs, ref_logprobs, sampler_logprobs, entropies, mask, options
    )
    return GrpoLoss(metrics["loss"], metrics, grad_logprobs, grad_entropies)


def compute_grpo_loss(
    policy_lps: Any, old_lps: Any, advantages: Any, offsets: Any, beta: float = 0.0, ref_lps: Any = None, eps: float = 0.2
) -> Any:
    """The simple form: mean over tokens of the clipped loss, plus beta times the mean over responses of their summed KL.

    Examples
    --------
    >>> import napier
    >>> loss = napier.compute_grpo_loss([-1.0, -2.0, -0.5], [-1.0, -2.5, -0.5], [1.0, -1.0], [0, 2, 3])
    >>> round(loss, 4)
    -0.4
    """
    return grpo_loss(
        policy_lps, advantages, offsets, old_logprobs=old_lps, ref_logprobs=ref_lps, beta=beta, epsilon=eps, loss_type="token_mean"
    ).loss


def grpo_from_logits(
    logits: Any,
    ids: Any,
    advantages: Any,
    offsets: Any,
    *,
    old_logprobs: Any = None,
    ref_logprobs: Any = None,
    sampler_logprobs: Any = None,
    mask: Any = None,
    temperature: float = 1.0,
    softcap: float = 0.0,
    gradient: bool = True,
    out: Any = None,
    **options: Any,
) -> Any:
    """The loss and its gradient directly from logits [T, V] and the tokens' ids [T]. out: the array for the gradient, which may
    be the logits themselves. Options are as in grpo_loss. Returns GrpoFromLogits.

    Examples
    --------
    >>> import numpy as np, napier
    >>> logits = np.array([[1, 0], [0, 1], [2, 0]], np.float32)
    >>> step = napier.grpo_from_logits(logits, [0, 1, 1], advantages=[1.0, -1.0], offsets=[0, 2, 3])
    >>> round(step.loss, 4), step.grad_logits.round(3)
    (0.0, array([[-0.067,  0.067],
           [ 0.067, -0.067],
           [-0.44 ,  0.44 ]], dtype=float32))
    """
    metrics, grad_logits, logprobs, entropies = _napier.grpo_from_logits(
        logits,
        ids,
        None,
        advantages,
        offsets,
        old_logprobs,
        ref_logprobs,
        sampler_logprobs,
        None,
        mask,
        options,
        temperature,
        softcap,
        gradient,
        out,
    )
    return GrpoFromLogits(metrics["loss"], metrics, grad_logits, logprobs, entropies)


def grpo_from_hidden(
    hidden: Any,
    weights: Any,
    ids: Any,
    advantages: Any,
    offsets: Any,
    *,
    old_logprobs: Any = None,
    ref_logprobs: Any = None,
    sampler_logprobs: Any = None,
    mask: Any = None,
    temperature: float = 1.0,
    softcap: float = 0.0,
    gradient: bool = True,
    **options: Any,
) -> GrpoFromHidden:
    """The loss and its gradients from hidden states [T, H] and the head's weights [V, H], without storing T x V logits. The
    bits are those of linear_token_logprobs, grpo_loss and linear_token_logprobs_backward. Options are as in grpo_loss. Returns
    GrpoFromHidden.

    Examples
    --------
    >>> import numpy as np, napier
    >>> hidden, weights = np.array([[1, 0], [0, 1], [2, 0]], np.float32), np.eye(2, dtype=np.float32)
    >>> step = napier.grpo_from_hidden(hidden, weights, [0, 1, 1], advantages=[1.0, -1.0], offsets=[0, 2, 3])
    >>> round(step.loss, 4), step.grad_weights.round(3)
    (0.0, array([[-0.948,  0.067],
           [ 0.948, -0.067]], dtype=float32))
    """
    metrics, *results = _napier.grpo_from_hidden(
        hidden,
        weights,
        ids,
        None,
        advantages,
        offsets,
        old_logprobs,
        ref_logprobs,
        sampler_logprobs,
        None,
        mask,
        options,
        temperature,
        softcap,
        gradient,
    )
    return GrpoFromHidden(metrics["loss"], metrics, *results)
