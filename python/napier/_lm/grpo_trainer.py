"""TRL with samples from Napier: the log-probability that a token is drawn with is the one that GRPOTrainer trains on, bit for bit.

>>> trainer = napier.trl.GRPOTrainer(model, reward, args=config, train_dataset=dataset)     # doctest: +SKIP

GRPOTrainer is TRL's, whose model computes with Napier (napier.hf.patch), and whose completions come from CausalLM.generate, with
the weights that are trained, in place. Rollout does only the sampling, for TRL's own trainer: GRPOTrainer(rollout_func=Rollout()).
docs/zero-mismatch.md shows a run.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Optional

import torch
import trl
from trl.extras.profiling import profiling_context

from .. import hf
from .causal_lm import CausalLM

__all__ = ["GRPOTrainer", "Rollout"]

_MODES = {"f32": "float32", "bf16": "bfloat16"}
_NUMBERS = 2**20  # of completions, for a process that has more than the trainer asks for
_METHODS = "_compute_loss", "_generate_single_turn", "_get_per_token_logps_and_entropies", "_tokenize_prompts"
_PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")

for _name in _METHODS:
    if not hasattr(trl.GRPOTrainer, _name):
        raise ImportError(f"napier.trl needs TRL 1.16 or a version like it: GRPOTrainer of TRL {trl.__version__} has no {_name}")


def _groups_of(prompts, size):
    """(distinct prompts, samples of each), if every run of `size` prompts is one prompt; else (prompts, 1)."""
    whole = size > 1 and len(prompts) % size == 0
    if whole and all(prompts[i] == prompts[i - i % size] for i in range(len(prompts))):
        return prompts[::size], size
    return prompts, 1


class Rollout:
    """Samples completions for a GRPOTrainer of TRL: rollout_func=Rollout().

    temperature, top_p, top_k, min_p, repetition_penalty, max_completion_length and generation_kwargs are the trainer's. A completion
    ends with one of its end tokens. Random numbers depend on the trainer's seed, the step and the number of the completion. So a
    run that is resumed draws what it would have drawn, if every step of the optimizer begins with a generation.

    `logprobs` are under the model's distribution at the temperature, without filters and penalties: the log-probabilities that the
    trainer computes. Without filters and penalties the tokens are drawn with them.

    Parameters
    ----------
    compute : 'f32' or 'bf16', which must be that of napier.hf.patch; default: that. A model that is not patched is refused, as the
        trainer would compute other log-probabilities
    memory : bytes that sampling may use besides the weights; 0: 1 GiB

    Examples
    --------
    >>> import datasets, napier.trl, transformers, trl
    >>> model = napier.hf.patch(transformers.AutoModelForCausalLM.from_pretrained("Qwen3-0.6B"))
    >>> tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file="Qwen3-0.6B/tokenizer.json",
    ...                                                  eos_token="<|im_end|>", pad_token="<|endoftext|>")
    >>> config = trl.GRPOConfig("run", max_steps=1, per_device_train_batch_size=2, num_generations=2, bf16=False,
    ...                         max_completion_length=4, use_cpu=True, report_to="none", disable_tqdm=True)
    >>> data = datasets.Dataset.from_dict({"prompt": ["2 + 2 =", "3 + 3 ="]})
    >>> rollout = napier.trl.Rollout()
    >>> trainer = trl.GRPOTrainer(model, lambda completions, **_: [float("4" in c) for c in completions],
    ...                           args=config, train_dataset=data, processing_class=tokenizer, rollout_func=rollout)
    >>> completion_ids, logprobs, *_ = rollout.complete([tokenizer.encode("2 + 2 =")], trainer)
    >>> len(completion_ids), rollout.sampler(trainer).info["layers"]
    (1, 2)
    """

    def __init__(self, compute: Optional[Literal["f32", "bf16"]] = None, memory: int = 0) -> None:
        _check_compute(compute)
        self._compute, self._memory = compute, memory
        self._source: Any = None
        self._sampler: Any = None
        self._place: Any = None

    def __call__(self, prompts: list[Any], trainer: trl.GRPOTrainer) -> dict[str, Any]:
        """The rollout of TRL: prompts, one for each completion, to their ids, those of the completions, and log-probabilities."""
        prompt_ids, images, _ = trainer._tokenize_prompts(prompts)
        if images is not None:
            raise NotImplementedError("prompts: images are not supported")
        ids, logprobs = self.complete(prompt_ids, trainer)
        return {"prompt_ids": prompt_ids, "completion_ids": ids, "logprobs": logprobs}

    def complete(self, prompt_ids: list[list[int]], trainer: trl.GRPOTrainer) -> tuple[list[list[int]], list[list[float]]]:
        """Completions of prompts, which are ids, and the log-probabilities of their tokens."""
        sampler = self.sampler(trainer)
        size = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        prompts, samples = _groups_of([list(ids) for ids in prompt_ids], size)
        first = trainer.accelerator.process_index * _most(trainer, len(prompt_ids))
        with profiling_context(trainer, "napier.generate"):
            made = sampler.generate(
                prompts,
                samples=samples,
                numbers=range(first, first + len(prompt_ids)),
                stop=trainer.eos_token_ids,
                seed=self._seed(trainer),
                **_options(trainer),
            )
        bounds = list(zip(made.offsets[:-1].tolist(), made.offsets[1:].tolist()))
        return ([made.token_ids[a:b].tolist() for a, b in bounds], [made.plain_logprobs[a:b].tolist() for a, b in bounds])

    def sampler(self, trainer: trl.GRPOTrainer) -> CausalLM:
        """The CausalLM that samples: it uses the model's own weights, as they are now."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        _check_arguments(trainer.args)
        if not hf.is_patched(model):
            raise ValueError(
                "model: not patched, so the trainer would compute other log-probabilities than the sampler; call "
                f"napier.hf.patch(model{', ' + repr(self._compute) if self._compute else ''}) first"
            )
        mode = hf._state(model).mode.compute
        if self._compute not in (None, mode):
            raise ValueError(
                f"compute: {self._compute!r}, but the model is patched in {mode!r}; leave it out, or call "
                f"napier.hf.patch(model, {self._compute!r})"
            )
        compute = _MODES[mode]
        if self._source is model and self._sampler.info["compute"] == compute:
            self._sampler.update()
        else:
            self._source, self._sampler = model, CausalLM.from_model(model, compute=compute, memory=self._memory)
        return self._sampler

    def _seed(self, trainer):
        """A seed for each generation: of the run, the step, and the generations before it in this step."""
        place = trainer.state.global_step, trainer.model.training
        self._place = (place, self._place[1] + 1) if self._place and self._place[0] == place else (place, 0)
        (step, training), count = self._place
        seed = ((trainer.args.seed * 2**32 + step) * 2 + training) * 2**12 + count
        return (seed + 2**63) % 2**64 - 2**63


def _most(trainer, count):
    """How many numbers of completions a process has: as many as it generates at once, so that a completion has its number in the
    batch of all processes, and its tokens do not depend on how many these are."""
    args, training = trainer.args, trainer.model.training
    most = args.per_device_train_batch_size * args.steps_per_generation if training else args.per_device_eval_batch_size
    return most if count <= most else _NUMBERS


def _check_compute(compute):
    if compute not in (None, *_MODES):
        raise ValueError(f"compute: expected 'f32' or 'bf16', got {compute!r}")


def _check_arguments(args):
    """Refuses what TRL would set up, or cast, before a model can be patched."""
    for name, way_out in (
        ("use_vllm", "Napier samples itself"),
        ("use_transformers_continuous_batching", "Napier samples itself"),
        ("cast_lm_head_to_fp32", "Napier's head adds up in float32 in any case"),
    ):
        if getattr(args, name, False):
            raise ValueError(f"{name}: {way_out}; set it to False")
    temperature = getattr(args, "temperature", 1.0)
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature: {temperature}; the trainer divides logits by it, so it must be above 0 and finite")


def _options(trainer):
    """The options of CausalLM.generate from those of the trainer."""
    options = {
        "temperature": trainer.temperature,
        "top_p": trainer.top_p,
        "top_k": trainer.top_k,
        "min_p": trainer.min_p,
        "repetition_penalty": trainer.repetition_penalty,
        "max_tokens": trainer.max_completion_length,
    }
    for name, value in (trainer.args.generation_kwargs or {}).items():
        name = {"max_new_tokens": "max_tokens"}.get(name, name)
        if name not in options and name not in _PENALTIES:
            raise ValueError(f"generation_kwargs: {name} is not supported by napier's generate")
        if name == "temperature" and value != trainer.temperature:
            raise ValueError(
                f"generation_kwargs: temperature is {value}, but the trainer computes log-probabilities at "
                f"{trainer.temperature}; set temperature of GRPOConfig"
            )
        options[name] = value
    none = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    return {name: none.get(name) if value is None else value for name, value in options.items()}


_METRICS = [
    *(("sampling_logp_difference", kind) for kind in ("mean", "max")),
    *(("importance_sampling_ratio", kind) for kind in ("min", "mean", "max")),
]


def _difference(apart):
    """[6]: how many tokens a process has, and its values of _METRICS, which are NaN if it has none."""
    if apart.numel() == 0:
        return apart.new_tensor([0] + len(_METRICS) * [torch.nan])
    size, ratio = apart.abs(), torch.exp(apart)
    return torch.stack([apart.new_tensor(apart.numel()), size.mean(), size.max(), ratio.min(), ratio.mean(), ratio.max()])


class GRPOTrainer(trl.GRPOTrainer):
    """TRL's GRPOTrainer, which samples and trains with Napier's arithmetic. Its arguments are TRL's, and two more.

    The model is on the CPU, of a class that napier.hf.patch takes. TRL's metrics sampling/sampling_logp_difference/mean and max, and
    sampling/importance_sampling_ratio/min, mean and max compare the sampler with the trainer's forward pass with the weights that
    were sampled from: 0 and 1.

    Parameters
    ----------
    compute : 'f32' or 'bf16', the mode of napier.hf.patch; default: that of a model that is patched, or f32. Its bf16_gradient
        stays
    memory : bytes that sampling may use besides the weights; 0: 1 GiB

    Examples
    --------
    >>> import datasets, napier.trl, transformers, trl
    >>> model = transformers.AutoModelForCausalLM.from_pretrained("Qwen3-0.6B")
    >>> tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file="Qwen3-0.6B/tokenizer.json",
    ...                                                  eos_token="<|im_end|>", pad_token="<|endoftext|>")
    >>> config = trl.GRPOConfig("run", max_steps=1, per_device_train_batch_size=2, num_generations=2, bf16=False,
    ...                         max_completion_length=4, use_cpu=True, report_to="none", disable_tqdm=True)
    >>> data = datasets.Dataset.from_dict({"prompt": ["2 + 2 =", "3 + 3 ="]})
    >>> trainer = napier.trl.GRPOTrainer(model, lambda completions, **_: [float("4" in c) for c in completions],
    ...                                  args=config, train_dataset=data, processing_class=tokenizer)
    >>> trainer.train().global_step  # doctest: +ELLIPSIS
    {...}
    1
    >>> logged = {name: value for log in trainer.state.log_history for name, value in log.items()}
    >>> logged["sampling/sampling_logp_difference/max"]
    0.0
    """

    rollout: Rollout

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: Optional[trl.GRPOConfig] = None,
        *others: Any,
        compute: Optional[Literal["f32", "bf16"]] = None,
        memory: int = 0,
        **options: Any,
    ) -> None:
        _check_compute(compute)
        _check_arguments(args)
        super().__init__(model, reward_funcs, args, *others, **options)
        trained = self.accelerator.unwrap_model(self.model)
        was = hf._state(trained).mode if hf.is_patched(trained) else None
        compute = compute or (was.compute if was else "f32")
        hf.patch(trained, compute, was is not None and was.bf16_gradient and compute != "f32")
        hf._follow(self)
        self.rollout = Rollout(memory=memory)
        self._forward_logps = None

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations, has_tool_images=False) -> Any:
        if images is not None:
            raise NotImplementedError("prompts: images are not supported")
        return self.rollout.complete(prompt_ids, self)

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        results = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._forward_logps = results[0].detach()
        return results

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        self._log_difference(inputs)
        return loss

    def _log_difference(self, inputs):
        """TRL's metrics of vLLM. Old log-probabilities are those of the weights that were sampled from. If TRL needs none, the
        weights have not changed. All processes gather, also one without tokens, as others wait for it."""
        sampled = inputs.get("sampling_per_token_logps")
        if sampled is None:
            return
        mask = inputs["completion_mask"]
        mask = (mask if inputs.get("tool_mask") is None else mask * inputs["tool_mask"]).bool()
        apart = (inputs.get("old_per_token_logps", self._forward_logps) - sampled)[mask]
        found = self.accelerator.gather(_difference(apart).unsqueeze(0))
        found = found[found[:, 0] > 0].T  # of the processes that have tokens
        if found.shape[1] == 0:
            return
        metrics = self._metrics["train" if self.model.training else "eval"]
        for (name, kind), x in zip(_METRICS, found[1:]):
            metrics[f"sampling/{name}/{kind}"].append(getattr(x, kind)().item())


for _kind in (GRPOTrainer, Rollout):
    _kind.__module__ = "napier.trl"  # a private module may move
