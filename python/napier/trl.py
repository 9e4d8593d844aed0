"""TRL's names and defaults for Napier: TRL's functions of log-probabilities, the loss of GRPOTrainer, and the trainer itself.

>>> import napier.trl, torch
>>> logps = torch.tensor([[-1.0, -2.0, 0.0], [-0.5, -0.1, -3.0]], requires_grad=True)
>>> mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
>>> loss, metrics = napier.trl.grpo_loss(logps, torch.tensor([1.0, -1.0]), mask, old_per_token_logps=logps.detach() - 0.3)
>>> round(loss.item(), 4), round(metrics["clip_ratio/high_mean"].item(), 4)
(0.3299, 0.4)

The functions need PyTorch alone; GRPOTrainer and Rollout need TRL. docs/trl.md has a table of TRL's names and Napier's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, Optional, Sequence, TypedDict, Unpack

import torch

from . import torch as nt

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

_IGNORED = -100  # an id whose log-probability is 0


if TYPE_CHECKING:
    from ._lm.grpo_trainer import GRPOTrainer, Rollout
else:

    def __getattr__(name):
        if name not in ("GRPOTrainer", "Rollout"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from ._lm import grpo_trainer

        return getattr(grpo_trainer, name)


def __dir__():
    return sorted(set(globals()) | set(__all__))


# ---- Log-probabilities -----------------------------------------------------------------------------------------------------------


def _kept_ids(index, row_mask):
    if row_mask is None:
        return index
    if row_mask.shape != index.shape:
        raise ValueError(f"row_mask: shape {tuple(row_mask.shape)} is not that of index, {tuple(index.shape)}")
    return torch.where(row_mask != 0, index, _IGNORED)


def selective_log_softmax(
    logits: torch.Tensor, index: torch.Tensor, temperature: float = 1.0, row_mask: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """TRL's: the log-probabilities [...] or [..., K] of the ids `index` under logits [..., V], in float32, and 0 where row_mask is
    0 or the id is -100.

    Examples
    --------
    >>> import napier.trl, torch
    >>> logits = torch.zeros(1, 2, 4, requires_grad=True)
    >>> napier.trl.selective_log_softmax(logits, torch.tensor([[3, 0]])).exp().tolist()
    [[0.25, 0.25]]
    """
    return nt.token_logprobs(logits, _kept_ids(index, row_mask), temperature=temperature).logprobs


def entropy_from_logits(logits: torch.Tensor, chunk_size: int = 128) -> torch.Tensor:
    """TRL's: the entropy [...] of each row of logits [..., V], in float32. chunk_size has no effect: nothing of the size of the
    logits is stored.

    Examples
    --------
    >>> import napier.trl, torch
    >>> [round(h, 4) for h in napier.trl.entropy_from_logits(torch.zeros(2, 4)).tolist()]
    [1.3863, 1.3863]
    """
    return nt.token_logprobs(logits, entropy=True).entropy


def selective_log_softmax_and_entropy(
    logits: torch.Tensor,
    index: torch.Tensor,
    entropy_requires_grad: bool = True,
    temperature: float = 1.0,
    row_mask: Optional[torch.Tensor] = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """TRL's: (log-probabilities, entropies) from one read of the logits; index and row_mask are [...]. Both are 0 where row_mask
    is 0. entropy_requires_grad: whether the entropies have a gradient.

    Examples
    --------
    >>> import napier.trl, torch
    >>> logits, mask = torch.zeros(1, 2, 4), torch.tensor([[1, 0]])  # the second token is padding
    >>> ids = torch.tensor([[3, 0]])
    >>> logps, entropies = napier.trl.selective_log_softmax_and_entropy(logits, ids, row_mask=mask)
    >>> [round(x, 4) for x in logps[0].tolist()], [round(x, 4) for x in entropies[0].tolist()]
    ([-1.3863, 0.0], [1.3863, 0.0])
    """
    if index.shape != logits.shape[:-1]:
        raise ValueError(f"index: shape {tuple(index.shape)} is not that of logits without its last dimension, {tuple(logits.shape[:-1])}")
    t = nt.token_logprobs(logits, _kept_ids(index, row_mask), temperature=temperature, entropy=True)
    entropy = t.entropy if entropy_requires_grad else t.entropy.detach()
    return t.logprobs, entropy if row_mask is None else entropy.masked_fill(row_mask == 0, 0.0)


def per_token_kl(
    per_token_logps: torch.Tensor,
    ref_per_token_logps: torch.Tensor,
    completion_mask: Optional[torch.Tensor] = None,
    estimator: Literal["k1", "k2", "k3"] = "k3",
) -> torch.Tensor:
    """GRPOTrainer's per_token_kl [B, L]: exp(ref - logp) - (ref - logp) - 1, and 0 where the mask is 0; with gradients with respect
    to both. estimator: 'k1' (logp - ref) and 'k2' (half its square) too.

    Examples
    --------
    >>> import napier.trl, torch
    >>> logps, ref = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -2.0]])
    >>> [round(x, 4) for x in napier.trl.per_token_kl(logps, ref)[0].tolist()]
    [0.1065, 0.0]
    """
    _shapes_of(per_token_logps, ref_per_token_logps=ref_per_token_logps, completion_mask=completion_mask)
    policy, ref, mask = (None if x is None else x.reshape(-1, 1) for x in (per_token_logps, ref_per_token_logps, completion_mask))
    return nt.kl_per_response(policy, ref, mask=mask, estimator=estimator).reshape(per_token_logps.shape)


# ---- Advantages ------------------------------------------------------------------------------------------------------------------


def _weighted_sum(rewards, weights):
    """The sum over the functions, in their order. NaN where no function gave a reward, as NaNs count in no sum."""
    total = torch.zeros_like(rewards[:, 0])
    for column, weight in zip(rewards.unbind(1), weights):
        total = total + torch.where(column.isnan(), 0.0, column) * weight
    return total.masked_fill(rewards.isnan().all(1), math.nan)


def grpo_advantages(
    rewards: torch.Tensor | Sequence[float],
    num_generations: int,
    *,
    reward_weights: Optional[Sequence[float] | torch.Tensor] = None,
    scale_rewards: str | bool = "group",
    multi_objective_aggregation: str = "sum_then_normalize",
) -> torch.Tensor:
    """The advantages [N] that GRPOTrainer computes from rewards [N], or [N, F] of several functions; each group of num_generations
    rewards belongs to one prompt. NaN: a function has no reward for this completion. A completion without any has advantage 0.

    scale_rewards: 'group', 'batch', 'none', or True and False. reward_weights: F numbers, default 1.
    multi_objective_aggregation: 'sum_then_normalize' or 'normalize_then_sum', which ignores scale_rewards as TRL does.

    Examples
    --------
    >>> import napier.trl, torch
    >>> rewards = torch.tensor([1.0, 0.0, 1.0, 1.0])  # two prompts with two completions each
    >>> [round(x, 3) for x in napier.trl.grpo_advantages(rewards, num_generations=2).tolist()]
    [0.707, -0.707, 0.0, 0.0]
    """
    scale = {True: "group", False: "none"}.get(scale_rewards, scale_rewards)
    rewards = torch.as_tensor(rewards).detach().float()
    rewards = rewards.unsqueeze(1) if rewards.dim() == 1 else rewards
    weights = [1.0] * rewards.shape[1] if reward_weights is None else list(reward_weights)
    if len(weights) != rewards.shape[1]:
        raise ValueError(f"reward_weights: {len(weights)} for the rewards of {rewards.shape[1]} functions")
    if multi_objective_aggregation == "sum_then_normalize":
        return nt.group_advantages(_weighted_sum(rewards, weights), num_generations, scale=scale)
    if multi_objective_aggregation != "normalize_then_sum":
        raise ValueError(
            f"multi_objective_aggregation: {multi_objective_aggregation!r} is not 'sum_then_normalize' or 'normalize_then_sum'"
        )
    each = torch.stack([nt.group_advantages(column, num_generations) for column in rewards.unbind(1)], 1)
    total = _weighted_sum(torch.where(rewards.isnan(), math.nan, each), weights)
    return nt.group_advantages(total, max(len(total), 1))


# ---- The loss --------------------------------------------------------------------------------------------------------------------


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


_DEFAULTS = {  # of GRPOConfig: its option, its default
    "loss_type": "dapo",
    "beta": 0.0,
    "epsilon": 0.2,
    "epsilon_high": None,
    "delta": None,
    "importance_sampling_level": "token",
    "max_completion_length": 512,
    "use_bias_correction_kl": True,
    "sapo_temperature_pos": 1.0,
    "sapo_temperature_neg": 1.05,
    "vespo_k_pos": 2.0,
    "vespo_lambda_pos": 3.0,
    "vespo_k_neg": 3.0,
    "vespo_lambda_neg": 2.0,
    "top_entropy_quantile": 1.0,
    "entropy_coef": 0.0,
    "off_policy_mask_threshold": None,
    "use_vllm": False,
    "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "sequence_mask",
    "vllm_importance_sampling_clip_max": 3.0,
    "vllm_importance_sampling_clip_min": None,
}
_NAMES = {  # Napier's names of options that are passed as they are
    "loss_type": "loss_type",
    "beta": "beta",
    "epsilon": "epsilon",
    "epsilon_high": "epsilon_high",
    "delta": "delta",
    "importance_sampling_level": "level",
    "max_completion_length": "max_completion_length",
    "use_bias_correction_kl": "kl_bias_correction",
    "sapo_temperature_pos": "sapo_tau_positive",
    "sapo_temperature_neg": "sapo_tau_negative",
    "vespo_k_pos": "vespo_k_positive",
    "vespo_lambda_pos": "vespo_lambda_positive",
    "vespo_k_neg": "vespo_k_negative",
    "vespo_lambda_neg": "vespo_lambda_negative",
    "top_entropy_quantile": "top_entropy_quantile",
    "entropy_coef": "entropy_coefficient",
    "off_policy_mask_threshold": "off_policy_threshold",
}


def _config(args, options):
    """The options of GRPOConfig: those that are given, else those of `args`, else TRL's defaults."""
    for name in options:
        if name not in _DEFAULTS:
            raise TypeError(f"{name}: not an option of GRPOConfig that the loss depends on; these are {', '.join(_DEFAULTS)}")
    if getattr(args, "use_adaptive_entropy", False):
        raise ValueError(
            "use_adaptive_entropy: the coefficient changes with each step; give that of the step as entropy_coef, and False here"
        )
    given = {name: getattr(args, name, default) for name, default in _DEFAULTS.items()}
    given.update(options)
    if given["delta"] is not None and given["delta"] <= 0:
        raise ValueError(f"delta: {given['delta']} is not above 0 (None: no second clip)")
    return given


def _options(config, num_items_in_batch, sampler):
    """The options of napier.torch.grpo_loss."""
    made = {ours: config[name] for name, ours in _NAMES.items() if config[name] is not None}
    if num_items_in_batch is not None:
        made["num_items"] = torch.as_tensor(num_items_in_batch).clamp(min=1).to("cpu", torch.float64)
    if config["use_vllm"] and config["vllm_importance_sampling_correction"]:
        if sampler is None:
            raise ValueError("sampling_per_token_logps: missing; use_vllm and vllm_importance_sampling_correction need it")
        high, low = config["vllm_importance_sampling_clip_max"], config["vllm_importance_sampling_clip_min"]
        made.update(
            correction=config["vllm_importance_sampling_mode"],
            correction_cap=math.inf if high is None else high,
            correction_floor=0.0 if low is None else low,
        )
    return made


def _shapes_of(per_token_logps, **tensors):
    if per_token_logps.dim() != 2:
        raise ValueError(f"per_token_logps: expected [B, L], got shape {tuple(per_token_logps.shape)}")
    for name, x in tensors.items():
        if x is not None and x.shape != per_token_logps.shape:
            raise ValueError(f"{name}: shape {tuple(x.shape)} is not [B, L] = {list(per_token_logps.shape)}")


def _prepared(like, advantages, completion_mask, tool_mask, args, config, num_items_in_batch, **logps):
    """(options of GRPOConfig, those of Napier's loss with the tensors of a batch)."""
    config = _config(args, config)
    _shapes_of(like, completion_mask=completion_mask, tool_mask=tool_mask, **logps)
    rows, length = like.shape
    if tuple(advantages.shape) not in ((rows,), (rows, 1), (rows, length)):
        raise ValueError(
            f"advantages: shape {tuple(advantages.shape)} is not [B], [B, 1] or [B, L] for {rows} completions of {length} tokens"
        )
    if config["beta"] != 0 and logps["ref_per_token_logps"] is None:
        raise ValueError(f"ref_per_token_logps: missing; beta is {config['beta']}")
    mask = completion_mask if tool_mask is None else (tool_mask != 0) & (completion_mask is None or completion_mask != 0)
    made = {name.replace("per_token_logps", "logprobs").replace("sampling", "sampler"): x for name, x in logps.items()}
    return config, {**made, "mask": mask, **_options(config, num_items_in_batch, logps["sampling_per_token_logps"])}


def _metrics(found, config, entropies):
    """Under the names of TRL's logs."""
    clips = {
        "clip_ratio/low_mean": found["clip_low"],
        "clip_ratio/high_mean": found["clip_high"],
        "clip_ratio/region_mean": found["clip_low"] + found["clip_high"],
    }
    if config["loss_type"] == "cispo":
        clips = {"cispo_clip_ratio": found["clip_high"]}
    elif config["loss_type"] in ("sapo", "vespo"):
        clips = {}
    kl = {"kl": found["kl"]} if config["beta"] != 0 else {}
    return {**clips, **kl, **({"entropy": found["entropy"]} if entropies else {})}


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
    num_items_in_batch: float | torch.Tensor | None = None,
    args: Optional[object] = None,
    **config: Unpack[_Config],
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """(loss, metrics) of a batch as GRPOTrainer computes them, with gradients with respect to per_token_logps and entropies.

    The loss is that of one process without accumulation of gradients. metrics has the names of TRL's logs:
    clip_ratio/low_mean, high_mean and region_mean or cispo_clip_ratio, kl and entropy, as means over tokens.

    Parameters
    ----------
    per_token_logps, old_per_token_logps, ref_per_token_logps, sampling_per_token_logps, entropies : [B, L]
        Without old_per_token_logps the step is on-policy. beta needs ref_per_token_logps.
    advantages : [B], [B, 1] or [B, L]
    completion_mask, tool_mask : [B, L]; a token counts if both are not 0. What stands in the others changes nothing.
    num_items_in_batch : for 'dapo', 'cispo' and 'vespo': the counted tokens of the global batch for each process; default: of this
        batch
    args : a GRPOConfig, whose options are the defaults of **config
    **config : options of GRPOConfig, with its defaults
        loss_type ('dapo'), beta, epsilon, epsilon_high, delta, importance_sampling_level, max_completion_length (512),
        use_bias_correction_kl (True), sapo_temperature_pos, sapo_temperature_neg, vespo_k_pos, vespo_lambda_pos, vespo_k_neg,
        vespo_lambda_neg, top_entropy_quantile, entropy_coef, off_policy_mask_threshold, use_vllm,
        vllm_importance_sampling_correction, _mode, _clip_max and _clip_min

    Examples
    --------
    >>> import napier.trl, torch
    >>> logps = torch.tensor([[-1.0, -2.0, 0.0], [-0.5, -0.1, -3.0]], requires_grad=True)
    >>> mask, advantages = torch.tensor([[1, 1, 0], [1, 1, 1]]), torch.tensor([1.0, -1.0])
    >>> loss, metrics = napier.trl.grpo_loss(logps, advantages, mask, loss_type="grpo")
    >>> loss.backward()
    >>> [round(g, 4) for g in logps.grad[0].tolist()]
    [-0.25, -0.25, 0.0]
    """
    logps = {
        "old_per_token_logps": old_per_token_logps,
        "ref_per_token_logps": ref_per_token_logps,
        "sampling_per_token_logps": sampling_per_token_logps,
        "entropies": entropies,
    }
    config, options = _prepared(per_token_logps, advantages, completion_mask, tool_mask, args, config, num_items_in_batch, **logps)
    loss, metrics = nt.grpo_loss(per_token_logps, advantages, **options)
    return loss, _metrics(metrics, config, entropies is not None)


def _loss_from(
    function, inputs, completion_ids, advantages, completion_mask, old, ref, sampling, tool_mask, num_items, args, temperature, config
):
    if temperature is None:
        temperature = getattr(args, "temperature", 1.0)
    logps = {"old_per_token_logps": old, "ref_per_token_logps": ref, "sampling_per_token_logps": sampling}
    config, options = _prepared(completion_ids, advantages, completion_mask, tool_mask, args, config, num_items, **logps)
    loss, metrics, logprobs, entropies = function(*inputs, completion_ids, advantages, temperature=temperature, **options)
    return loss, _metrics(metrics, config, True), logprobs, entropies


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
    num_items_in_batch: float | torch.Tensor | None = None,
    args: Optional[object] = None,
    temperature: Optional[float] = None,
    **config: Unpack[_Config],
) -> tuple[torch.Tensor, dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    """(loss, metrics, per_token_logps, entropies) of grpo_loss straight from logits [B, L, V], which are those of the completion's
    tokens, and completion_ids [B, L]. The loss has a gradient with respect to logits. temperature: default that of `args`, or 1.

    Examples
    --------
    >>> import napier.trl, torch
    >>> logits, ids = torch.zeros(2, 3, 4, requires_grad=True), torch.tensor([[1, 2, 0], [3, 1, 2]])
    >>> mask, advantages = torch.tensor([[1, 1, 0], [1, 1, 1]]), torch.tensor([1.0, -1.0])
    >>> loss, metrics, logps, entropies = napier.trl.grpo_loss_from_logits(logits, ids, advantages, mask)
    >>> loss.backward()
    >>> [round(g, 4) for g in logits.grad[0, 0].tolist()]
    [0.05, -0.15, 0.05, 0.05]
    """
    return _loss_from(
        nt.grpo_from_logits,
        (logits,),
        completion_ids,
        advantages,
        completion_mask,
        old_per_token_logps,
        ref_per_token_logps,
        sampling_per_token_logps,
        tool_mask,
        num_items_in_batch,
        args,
        temperature,
        config,
    )


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
    num_items_in_batch: float | torch.Tensor | None = None,
    args: Optional[object] = None,
    temperature: Optional[float] = None,
    **config: Unpack[_Config],
) -> tuple[torch.Tensor, dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    """(loss, metrics, per_token_logps, entropies) of grpo_loss from hidden states [B, L, H] and the head's weights [V, H], without
    storing logits. The loss has gradients with respect to both.

    Examples
    --------
    >>> import napier.trl, torch
    >>> hidden, head = torch.ones(2, 3, 8), torch.zeros(4, 8, requires_grad=True)
    >>> ids, mask = torch.tensor([[1, 2, 0], [3, 1, 2]]), torch.tensor([[1, 1, 0], [1, 1, 1]])
    >>> loss, metrics, *_ = napier.trl.grpo_loss_from_hidden(hidden, head, ids, torch.tensor([1.0, -1.0]), mask)
    >>> loss.backward()
    >>> [round(g, 4) for g in head.grad[:, 0].tolist()]
    [-0.05, -0.05, -0.05, 0.15]
    """
    return _loss_from(
        nt.grpo_from_hidden,
        (hidden_states, lm_head_weight),
        completion_ids,
        advantages,
        completion_mask,
        old_per_token_logps,
        ref_per_token_logps,
        sampling_per_token_logps,
        tool_mask,
        num_items_in_batch,
        args,
        temperature,
        config,
    )
