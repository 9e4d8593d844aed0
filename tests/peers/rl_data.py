"""What the rl tests share: data, Napier's calls on arrays, and TRL's loss without its trainer."""
import inspect
import types
from collections import defaultdict

import numpy as np
import torch

from napier_c import napier
from support import Skip


def f32(x):
    return np.ascontiguousarray(x, np.float32)


def double(x):
    """A leaf of torch in float64 with the same values."""
    return torch.from_numpy(np.asarray(x, np.float64)).requires_grad_()


def error(ours, theirs):
    """The largest difference, relative to the largest of `theirs` or 1e-30."""
    theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else np.asarray(theirs)
    ours = np.asarray(ours, np.float64).reshape(theirs.shape)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    finite = np.abs(theirs[np.isfinite(theirs)])
    gap = np.where(same, 0.0, np.abs(ours - np.where(same, ours, theirs)))
    return float(gap.max(initial=0.0) / max(finite.max(initial=0.0), 1e-30))


def close(ours, theirs, bound, what):
    found = error(ours, theirs)
    assert found <= bound, f"{what}: {found:.3g} is more than {bound:.3g}"
    return found


# ---- Log-probabilities -----------------------------------------------------------------------------------------------


def token_logprobs(logits, ids, wanted, top_k=0, **options):
    """What napier_token_logprobs gives of these names, as arrays."""
    rows = logits.shape[0]
    made = {}
    for name in wanted:
        shape = {"logprobs": (rows, ids.size // rows), "rank": (rows, ids.size // rows), "top_ids": (rows, top_k),
                 "top_logprobs": (rows, top_k)}.get(name, (rows,))
        made[name] = np.zeros(shape, np.int64 if name in ("rank", "argmax", "top_ids") else np.float32)
    napier.call("napier_token_logprobs", logits, ids.reshape(-1), napier.make("napier_token_options", **options),
                napier.make("napier_token_results", top_k=top_k, **made))
    return made


def token_gradient(logits, ids, gradients, **options):
    grad_logits = np.empty_like(logits)
    napier.call("napier_token_logprobs_backward", logits, ids.reshape(-1),
                napier.make("napier_token_options", **options), napier.make("napier_token_gradients", **gradients),
                grad_logits)
    return grad_logits


# ---- A batch for the losses --------------------------------------------------------------------------------------------


class Batch:
    """Responses of uneven length as TRL holds them, padded [B, L], and as Napier does, one after another."""

    def __init__(self, seed, lengths=(7, 3, 12, 1, 9, 5), spread=0.3, tools=True):
        rng = np.random.default_rng(seed)
        self.lengths = np.array(lengths)
        self.inside = np.arange(self.lengths.max())[None, :] < self.lengths[:, None]
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        tokens = int(self.offsets[-1])
        self.logprobs = f32(-np.abs(rng.normal(size=tokens) * 2) - 0.01)
        self.old = f32(self.logprobs + spread * rng.normal(size=tokens))
        self.ref = f32(self.logprobs + spread * rng.normal(size=tokens))
        self.sampler = f32(self.old + spread * rng.normal(size=tokens))
        self.entropies = f32(rng.gamma(2.0, 0.7, tokens))
        self.advantages = f32(rng.normal(size=len(lengths)))
        self.counts = np.ones(tokens, np.uint8)
        if tools:  # tokens that a tool wrote: they do not count
            self.counts[rng.random(tokens) < 0.2] = 0
            self.counts[self.offsets[:-1]] = 1

    def padded(self, flat, fill=0.0):
        result = torch.full(self.inside.shape, fill, dtype=torch.float64)
        result[torch.from_numpy(self.inside)] = torch.as_tensor(flat).double()
        return result

    def flat(self, padded):
        return padded.detach()[torch.from_numpy(self.inside)].numpy()


# ---- TRL's own loss ----------------------------------------------------------------------------------------------------


class Accelerator:
    """One process."""

    num_processes, sync_gradients = 1, True

    def gather(self, x):
        return x

    gather_for_metrics = gather

    def reduce(self, x, reduction="sum"):
        return x

    def pad_across_processes(self, x, **_):
        return x


def trainer_class():
    from trl import GRPOTrainer

    return GRPOTrainer


def needs_type(name):
    if f'"{name}"' not in inspect.getsource(trainer_class()._compute_loss):
        import trl

        raise Skip(f"TRL {trl.__version__} has no loss type {name}")


TRAINER = {"importance_sampling_level": "token", "epsilon_low": 0.2, "epsilon_high": 0.2, "beta": 0.0,
           "top_entropy_quantile": 1.0, "off_policy_mask_threshold": None, "use_vllm": False,
           "vllm_importance_sampling_correction": False, "aux_loss_enabled": False, "use_adaptive_entropy": False,
           "_entropy_bonus_enabled": False, "entropy_coef": 0.0, "max_completion_length": 16,
           "current_gradient_accumulation_steps": 1}
ARGUMENTS = {"delta": None, "use_bias_correction_kl": False, "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05,
             "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0, "vespo_k_neg": 3.0, "vespo_lambda_neg": 2.0,
             "steps_per_generation": 1}


def shell(**settings):
    """A GRPOTrainer that was never set up: only what its _compute_loss asks for."""
    trainer = object.__new__(trainer_class())
    arguments = {k: settings.pop(k, v) for k, v in ARGUMENTS.items()}
    vars(trainer).update({"accelerator": Accelerator(), **TRAINER, **settings, "args": types.SimpleNamespace(**arguments),
                          "model": types.SimpleNamespace(training=True), "_entropy_window_stats": None,
                          "_metrics": {"train": defaultdict(list), "eval": defaultdict(list)}})
    return trainer


def trl_loss(batch, logprobs=None, entropies=None, on_policy=False, correction=None, num_items=None, advantages=None,
             sampler=None, **settings):
    """The loss as TRL computes it in float64, its gradients by autograd, and its metrics. logprobs: a leaf [B, L]."""
    logprobs = batch.padded(batch.logprobs).requires_grad_() if logprobs is None else logprobs
    entropies = batch.padded(batch.entropies).requires_grad_() if entropies is None else entropies
    trainer = shell(**settings)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (logprobs, entropies, None)
    inside = torch.from_numpy(batch.inside).long()
    counts = batch.padded(batch.counts).long()
    none = torch.zeros(len(batch.lengths), 0, dtype=torch.long)
    inputs = {"prompt_ids": none, "prompt_mask": none, "completion_ids": inside, "completion_mask": inside,
              "tool_mask": counts, "ref_per_token_logps": batch.padded(batch.ref),
              "advantages": torch.as_tensor(batch.advantages).double() if advantages is None else advantages,
              "num_items_in_batch": torch.tensor(float(num_items or counts.sum()), dtype=torch.float64)}
    if not on_policy:
        inputs["old_per_token_logps"] = batch.padded(batch.old)
    if sampler is not None:
        inputs["sampling_per_token_logps"] = batch.padded(sampler)
    if correction is not None:
        inputs["importance_sampling_ratio"] = correction
        trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    return loss, logprobs.grad, entropies.grad, trainer._metrics["train"]


def sampling_ratio(batch, mode, cap):
    """The importance-sampling correction as GRPOTrainer prepares it before its loss (it has no function of its own)."""
    gap = (batch.padded(batch.old) - batch.padded(batch.sampler)) * batch.padded(batch.counts)
    gap = torch.nan_to_num(gap, nan=0.0)
    ratio = torch.exp(gap.sum(-1, keepdim=True) if mode.startswith("sequence") else gap)
    return ratio.clamp(max=cap) if mode.endswith("truncate") else ratio.masked_fill(ratio > cap, 0.0)


# ---- Napier's loss -----------------------------------------------------------------------------------------------------


def napier_batch(batch, on_policy=False, **arrays):
    fields = {"logprobs": batch.logprobs, "old_logprobs": batch.old, "ref_logprobs": batch.ref,
              "entropies": batch.entropies, "advantages": batch.advantages, "mask": batch.counts, "offsets": batch.offsets}
    if on_policy:
        del fields["old_logprobs"]
    fields.update(arrays)
    return napier.make("napier_grpo_batch", **{k: v for k, v in fields.items() if v is not None})


def napier_loss(batch, made=None, **options):
    """The metrics, and the gradients with respect to log-probabilities and entropies."""
    made = made or napier_batch(batch)
    metrics = napier.make("napier_grpo_metrics")
    gradients = np.empty_like(batch.logprobs), np.empty_like(batch.logprobs)
    napier.call("napier_grpo_loss", made, napier.make("napier_grpo_options", **options), metrics, *gradients)
    return metrics, *gradients
