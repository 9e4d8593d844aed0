"""napier.trl's functions against TRL's own: values and gradients. TRL's loss is GRPOTrainer._compute_loss in float64."""
import dataclasses
import inspect
import itertools
import math
import types

import torch
import trl
from trl.trainer.utils import entropy_from_logits, nanstd, selective_log_softmax, selective_log_softmax_and_entropy

import napier.trl as nt
from rl_data import Batch, trl_loss
from support import python, raises

TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo", "luspo")
MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")


def near(ours, theirs, bound, what):
    assert ours.shape == theirs.shape, (what, ours.shape, theirs.shape)
    gap = (ours.detach().double() - theirs.detach().double()).abs().max().item() if theirs.numel() else 0.0
    assert gap <= bound * max(1.0, theirs.detach().abs().max().item()), f"{what}: {gap}"


def test_names_and_defaults_are_those_of_trl():
    """Every function has TRL's parameters and defaults, and every option is a field of GRPOConfig with its default."""
    for theirs in (selective_log_softmax, entropy_from_logits, selective_log_softmax_and_entropy):
        ours = inspect.signature(getattr(nt, theirs.__name__)).parameters
        wanted = inspect.signature(theirs).parameters
        assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in wanted.values()], theirs.__name__
    fields = {f.name: f.default for f in dataclasses.fields(trl.GRPOConfig)}
    for name, default in nt._DEFAULTS.items():
        assert fields[name] == default, (name, fields[name], default)
    defaults = inspect.signature(nt.grpo_advantages).parameters
    assert all(defaults[name].default == fields[name] for name in ("scale_rewards", "multi_objective_aggregation"))


def leaves(x):
    return x.clone().requires_grad_(), x.double().clone().requires_grad_()


def test_log_probabilities_and_entropies():
    torch.manual_seed(3)
    x, mask = torch.randn(3, 7, 501) * 4, torch.rand(3, 7) < 0.7
    for index, row_mask, temperature in ((torch.randint(501, (3, 7)), None, 1.0), (torch.randint(501, (3, 7)), mask, 0.7),
                                         (torch.randint(501, (3, 7)), mask.long(), 1.0),
                                         (torch.randint(501, (3, 7, 4)), None, 1.3), (torch.randint(501, (3, 7, 1)), None, 1.0)):
        ours, theirs = leaves(x)
        y = nt.selective_log_softmax(ours, index, temperature, row_mask)
        z = selective_log_softmax(theirs, index, temperature, row_mask)
        near(y, z, 1e-6, "selective_log_softmax")
        y.pow(2).sum().backward()
        z.pow(2).sum().backward()
        near(ours.grad, theirs.grad, 3e-6, "its gradient")
    ours, theirs = leaves(x)
    y, z = nt.entropy_from_logits(ours, chunk_size=3), entropy_from_logits(theirs, chunk_size=3)
    near(y, z, 2e-6, "entropy_from_logits")
    y.pow(2).sum().backward()
    z.pow(2).sum().backward()
    near(ours.grad, theirs.grad, 2e-5, "its gradient")
    index = torch.randint(501, (3, 7))
    for with_gradient, row_mask in itertools.product((True, False), (None, mask)):
        ours, theirs = leaves(x)
        y = nt.selective_log_softmax_and_entropy(ours, index, with_gradient, 0.9, row_mask)
        z = selective_log_softmax_and_entropy(theirs, index, with_gradient, 0.9, row_mask)
        for made, wanted in zip(y, z):
            near(made, wanted, 2e-6, "both")
        assert y[1].requires_grad == with_gradient
        (y[0].sum() + y[1].pow(2).sum()).backward()
        (z[0].sum() + z[1].pow(2).sum()).backward()
        near(ours.grad, theirs.grad, 2e-5, "the gradient of both")


def test_per_token_kl():
    torch.manual_seed(4)
    p, r, mask = -torch.rand(4, 9) * 3, -torch.rand(4, 9) * 3, torch.rand(4, 9) < 0.6
    for estimator, of in (("k1", lambda d: -d), ("k2", lambda d: d * d / 2), ("k3", lambda d: torch.exp(d) - d - 1)):
        for m in (None, mask):
            a, b = leaves(p)
            c, d = leaves(r)
            y, z = nt.per_token_kl(a, c, m, estimator), of(d - b)
            z = z if m is None else torch.where(m, z, 0.0)
            near(y, z, 2e-6, estimator)
            y.sum().backward()
            z.sum().backward()
            near(a.grad, b.grad, 2e-6, estimator)
            near(c.grad, d.grad, 2e-6, estimator)
    assert not nt.per_token_kl(p, p).any()


# ---- Advantages --------------------------------------------------------------------------------------------------------------


def advantages_of_trl(rewards, size, weights, scale, aggregation):
    """Computes them as GRPOTrainer._generate_and_score_completions does, in float64: it has no function of its own for this."""
    rewards = rewards.double()
    none = rewards.isnan().all(1)
    if aggregation == "normalize_then_sum":
        grouped = rewards.view(-1, size, rewards.shape[1])
        grouped = (grouped - grouped.nanmean(1, keepdim=True)) / (nanstd(grouped, dim=1, keepdim=True) + 1e-4)
        total = (grouped.view(-1, rewards.shape[1]) * weights).nansum(1)
        total[none] = math.nan
        made = (total - total.nanmean()) / (nanstd(total) + 1e-4)
    else:
        total = (rewards * weights).nansum(1)
        total[none] = math.nan
        spread = nanstd(total.view(-1, size), dim=1).repeat_interleave(size) if scale == "group" else nanstd(total).expand_as(total)
        made = total - total.view(-1, size).nanmean(1).repeat_interleave(size)
        made = made if scale == "none" else made / (spread + 1e-4)
    return made.nan_to_num(nan=0.0)


def test_advantages():
    torch.manual_seed(5)
    for functions, size in ((1, 4), (3, 4), (2, 8)):
        rewards = torch.randn(24, functions)
        rewards[3] = math.nan
        rewards[7, -1] = math.nan
        weights = torch.linspace(0.5, 2.0, functions)
        for scale, aggregation in itertools.product(("group", "batch", "none"), ("sum_then_normalize", "normalize_then_sum")):
            made = nt.grpo_advantages(rewards, size, reward_weights=weights, scale_rewards=scale, multi_objective_aggregation=aggregation)
            near(made, advantages_of_trl(rewards, size, weights, scale, aggregation), 2e-5, (functions, size, scale, aggregation))
    one = torch.randn(8)
    assert torch.equal(nt.grpo_advantages(one, 4), nt.grpo_advantages(one[:, None], 4, scale_rewards=True))
    assert torch.equal(nt.grpo_advantages(one, 4, scale_rewards=False), nt.grpo_advantages(one.tolist(), 4, scale_rewards="none"))


# ---- The loss ----------------------------------------------------------------------------------------------------------------


def tensors_of(batch):
    """A batch as TRL's trainer has it, in float32."""
    inside = torch.from_numpy(batch.inside)
    made = {"old_per_token_logps": batch.old, "ref_per_token_logps": batch.ref, "sampling_per_token_logps": batch.sampler,
            "entropies": batch.entropies}
    made = {name: batch.padded(x).float() for name, x in made.items()}
    return batch.padded(batch.logprobs).float(), {**made, "completion_mask": inside.long(), "tool_mask": batch.padded(batch.counts).long()}


def ratio_of_trl(batch, mode, high, low):
    """The importance-sampling correction as GRPOTrainer prepares it before its loss."""
    gap = (batch.padded(batch.old) - batch.padded(batch.sampler)) * batch.padded(batch.counts)
    gap = torch.nan_to_num(gap, nan=0.0)
    ratio = torch.exp(gap.sum(-1, keepdim=True) if mode.startswith("sequence") else gap)
    if mode.endswith("truncate"):
        return ratio.clamp(min=low, max=high)
    return ratio.masked_fill((ratio < (low or -math.inf)) | (ratio > (high or math.inf)), 0.0)


def compare(batch, loss_type, theirs=None, advantages=None, num_items=None, **config):
    """One setting in both. theirs: what TRL's trainer calls otherwise."""
    settings = {"use_bias_correction_kl": True, "max_completion_length": 512, **config, **(theirs or {})}
    for name, other in (("epsilon", "epsilon_low"),):
        if name in settings:
            settings[other] = settings.pop(name)
    if settings.get("epsilon_high", 0) is None or "epsilon_high" not in settings:
        settings["epsilon_high"] = settings.get("epsilon_low", 0.2)
    for name in [name for name in settings if name.startswith(("vllm_", "use_vllm"))]:
        del settings[name]
    settings["_entropy_bonus_enabled"] = bool(config.get("entropy_coef"))
    wanted, grad, grad_entropies, logs = trl_loss(batch, loss_type=loss_type, advantages=advantages, num_items=num_items, **settings)
    logps, rest = tensors_of(batch)
    if "sampler" not in settings and not config.get("use_vllm"):
        del rest["sampling_per_token_logps"]
    logps.requires_grad_()
    entropies = rest["entropies"].requires_grad_()
    given = torch.as_tensor(batch.advantages) if advantages is None else advantages.float()
    loss, metrics = nt.grpo_loss(logps, given, loss_type=loss_type, num_items_in_batch=num_items, **rest, **config)
    loss.backward()
    what = (loss_type, config)
    near(loss, wanted, 4e-6, what)
    near(logps.grad, grad, 6e-6, what)
    if grad_entropies is not None:
        near(entropies.grad, grad_entropies, 6e-6, what)
    level = config.get("importance_sampling_level", "token")
    assert {key for key in logs if "min" not in key and "max" not in key and not key.startswith(("policy", "vespo", "entropy_coef"))} == set(metrics)
    for key in metrics if level == "token" else ():
        near(metrics[key], torch.tensor(logs[key][0]), 1e-5, (key, *what))
    return loss, logps.grad


def test_losses():
    for loss_type, level in itertools.product(TYPES, ("token", "sequence")):
        for seed, options in enumerate(({}, {"beta": 0.04}, {"beta": 0.3, "use_bias_correction_kl": False, "epsilon": 0.1},
                                        {"epsilon_high": 0.28 if loss_type != "cispo" else 5.0, "max_completion_length": 20},
                                        {"sapo_temperature_pos": 0.9, "sapo_temperature_neg": 1.3, "vespo_k_pos": 1.5,
                                         "vespo_lambda_pos": 2.5, "vespo_k_neg": 2.5, "vespo_lambda_neg": 1.5})):
            compare(Batch(seed), loss_type, importance_sampling_level=level, num_items=None if seed % 2 else 61.0, **options)
    for loss_type in ("grpo", "dapo", "luspo"):
        compare(Batch(9), loss_type, delta=1.15)


def test_masks_and_corrections():
    for loss_type in ("grpo", "dapo", "cispo", "vespo"):
        compare(Batch(2), loss_type, top_entropy_quantile=0.4, entropy_coef=0.05)
        compare(Batch(3, spread=0.8), loss_type, off_policy_mask_threshold=0.1)
        batch = Batch(4, spread=0.8)
        compare(batch, loss_type, {"sampler": batch.sampler}, off_policy_mask_threshold=0.1)
        for mode, (high, low) in itertools.product(MODES, ((3.0, None), (1.5, 0.6), (None, 0.7))):
            batch = Batch(5, spread=0.5)
            compare(batch, loss_type, {"correction": ratio_of_trl(batch, mode, high, low)}, use_vllm=True,
                    vllm_importance_sampling_mode=mode, vllm_importance_sampling_clip_max=high, vllm_importance_sampling_clip_min=low)


def test_shapes_of_advantages():
    batch = Batch(6)
    flat = torch.as_tensor(batch.advantages).double()
    for loss_type in TYPES:
        one = compare(batch, loss_type, advantages=flat)
        column = compare(batch, loss_type, advantages=flat[:, None])
        assert all(torch.equal(a, b) for a, b in zip(one, column))
    each = flat[:, None] + torch.linspace(-0.5, 0.5, batch.inside.shape[1]).double()
    for loss_type in ("grpo", "dapo", "cispo", "sapo"):
        compare(batch, loss_type, advantages=each)


def test_what_the_mask_leaves_out_changes_nothing():
    batch = Batch(7)
    logps, rest = tensors_of(batch)
    out = (rest["completion_mask"] * rest["tool_mask"]) == 0
    assert out.any()
    wanted = nt.grpo_loss(logps, torch.as_tensor(batch.advantages), beta=0.1, **rest)
    for junk in (math.nan, math.inf, -1e30):
        filled = {name: x.masked_fill(out, junk) if x.is_floating_point() else x for name, x in rest.items()}
        found = nt.grpo_loss(logps.masked_fill(out, junk), torch.as_tensor(batch.advantages), beta=0.1, **filled)
        assert torch.equal(found[0], wanted[0]) and all(torch.equal(found[1][key], wanted[1][key]) for key in wanted[1])


def test_a_config():
    """args: the options of a GRPOConfig, under those that are given."""
    batch = Batch(8)
    logps, rest = tensors_of(batch)
    config = trl.GRPOConfig(output_dir="x", loss_type="grpo", beta=0.2, epsilon=0.1, bf16=False, use_cpu=True, temperature=0.5)
    advantages = torch.as_tensor(batch.advantages)
    one = nt.grpo_loss(logps, advantages, args=config, **rest)[0]
    assert torch.equal(one, nt.grpo_loss(logps, advantages, loss_type="grpo", beta=0.2, epsilon=0.1, **rest)[0])
    other = nt.grpo_loss(logps, advantages, args=config, beta=0.0, **rest)[0]
    assert torch.equal(other, nt.grpo_loss(logps, advantages, loss_type="grpo", epsilon=0.1, **rest)[0]) and not torch.equal(one, other)
    config.use_adaptive_entropy = True
    raises(ValueError, "use_adaptive_entropy", lambda: nt.grpo_loss(logps, advantages, args=config, **rest))


def test_from_logits_and_hidden_states():
    """The bits are the same from log-probabilities and from logits, and the temperature of the config."""
    torch.manual_seed(1)
    batch = Batch(10)
    _, rest = tensors_of(batch)
    del rest["entropies"]
    size, advantages = batch.inside.shape, torch.as_tensor(batch.advantages)
    hidden, head, ids = torch.randn(*size, 8), torch.randn(300, 8), torch.randint(300, size)
    logits = (hidden @ head.T).requires_grad_()
    logps, entropies = nt.selective_log_softmax_and_entropy(logits, ids, temperature=0.8)
    mask = rest["completion_mask"] * rest["tool_mask"] != 0
    options = {"beta": 0.04, "args": types.SimpleNamespace(temperature=0.8)}
    wanted, metrics = nt.grpo_loss(logps, advantages, entropies=entropies.detach(), **options, **rest)
    to_logits, = torch.autograd.grad(wanted, logits)
    loss, found, made_logps, made_entropies = nt.grpo_loss_from_logits(logits, ids, advantages, **options, **rest)
    assert torch.equal(loss, wanted) and torch.equal(made_logps[mask], logps[mask]) and torch.equal(made_entropies[mask], entropies[mask])
    assert all(torch.equal(found[key], metrics[key]) for key in metrics)
    near(torch.autograd.grad(loss, logits)[0], to_logits, 1e-6, "logits")
    hidden.requires_grad_(), head.requires_grad_()
    loss, found, made_logps, _ = nt.grpo_loss_from_hidden(hidden, head, ids, advantages, **options, **rest)
    near(loss, wanted, 1e-5, "hidden")
    to_hidden, to_head = torch.autograd.grad(loss, (hidden, head))
    near(to_hidden, to_logits @ head, 1e-5, "hidden states")
    near(to_head, to_logits.flatten(0, 1).T @ hidden.flatten(0, 1), 1e-5, "the head")


def test_refusals():
    logps, mask, advantages = torch.zeros(2, 3), torch.ones(2, 3), torch.zeros(2)
    cases = [(TypeError, "epsilon_low: not an option of GRPOConfig", lambda: nt.grpo_loss(logps, advantages, mask, epsilon_low=0.1)),
             (ValueError, "completion_mask: shape (2, 4)", lambda: nt.grpo_loss(logps, advantages, torch.ones(2, 4))),
             (ValueError, "old_per_token_logps: shape", lambda: nt.grpo_loss(logps, advantages, old_per_token_logps=logps[:1])),
             (ValueError, "advantages: shape (3,)", lambda: nt.grpo_loss(logps, torch.zeros(3), mask)),
             (ValueError, "per_token_logps: expected [B, L]", lambda: nt.grpo_loss(logps[0], advantages)),
             (ValueError, "ref_per_token_logps: missing; beta is 0.1", lambda: nt.grpo_loss(logps, advantages, mask, beta=0.1)),
             (ValueError, "sampling_per_token_logps: missing", lambda: nt.grpo_loss(logps, advantages, mask, use_vllm=True)),
             (ValueError, "delta: 0 is not above 0", lambda: nt.grpo_loss(logps, advantages, mask, delta=0)),
             (ValueError, "loss_type", lambda: nt.grpo_loss(logps, advantages, mask, loss_type="ppo")),
             (ValueError, "entropies", lambda: nt.grpo_loss(logps, advantages, mask, entropy_coef=0.1)),
             (ValueError, "row_mask: shape", lambda: nt.selective_log_softmax(logps, mask[:, 0].long(), row_mask=mask)),
             (ValueError, "index: shape (2, 1)", lambda: nt.selective_log_softmax_and_entropy(logps, mask[:, :1].long())),
             (ValueError, "temperature", lambda: nt.selective_log_softmax(logps, mask[:, 0].long(), 0.0)),
             (ValueError, "reward_weights: 2 for", lambda: nt.grpo_advantages(advantages, 2, reward_weights=[1, 2])),
             (ValueError, "scale", lambda: nt.grpo_advantages(advantages, 2, scale_rewards="all")),
             (ValueError, "multi_objective_aggregation: 'sum'", lambda: nt.grpo_advantages(advantages, 2, multi_objective_aggregation="sum")),
             (AttributeError, "DPOTrainer", lambda: nt.DPOTrainer)]
    for kind, text, call in cases:
        raises(kind, text, call)


def test_the_functions_need_no_trl():
    said = python("-c", "import sys; sys.modules['trl'] = sys.modules['transformers'] = None\nimport doctest, napier.trl\n"
                  "assert doctest.testmod(napier.trl).failed == 0\n"
                  "try: napier.trl.GRPOTrainer\nexcept ImportError as error: print(error)")
    assert said.returncode == 0 and "trl" in said.stdout, said.stderr
