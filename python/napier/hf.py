"""Models of transformers that compute with Napier: patch(model) gives a model's forward pass the bits of napier's own models.

>>> napier.hf.patch(model)                          # doctest: +SKIP
>>> napier.hf.unpatch(model)                        # doctest: +SKIP

Between the two, the log-probability of a token is the one that napier.CausalLM samples with and scores, bit for bit, with
gradients. docs/hf.md says what is patched, and what is refused.

Every step of a decoder works on rows, except attention, which gets the tokens of a padded batch as sequences. So a row has the
bits of its sequence alone.
"""

import contextlib
import functools
import importlib.util
import inspect
import sys
import threading
import warnings
from typing import NamedTuple

import torch
import transformers
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from . import torch as _torch
from ._lm import adapters as _adapters
from ._torch.packing import Packing, sequences_of, shown, spread

if int(transformers.__version__.partition(".")[0]) < 5:
    raise ImportError("napier.hf needs transformers 5 or later")

__all__ = ["is_patched", "patch", "patched", "token_logprobs", "unpatch"]

Tensor = torch.Tensor

_NAME = "napier"  # in transformers' registries
_FAMILIES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
_HEADS = {"ForCausalLM": "lm_head", "ForSequenceClassification": "score"}
_MODES = ("f32", "bf16")
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


# ---- Attention, in transformers' registries ----------------------------------------------------------------------------------


def _packed(x, indices):
    """The rows [tokens, heads, dim] of x [batch, heads, length, dim] at these indices."""
    x = x.transpose(1, 2).flatten(0, 1)
    return x if indices is None else x.index_select(0, indices)


def _as_it_is(query, *others, **options):
    """Attention in the dtype of its arguments, as everywhere in Napier's models: torch.autocast would change the bits."""
    with torch.autocast(query.device.type, enabled=False):
        return _torch.attention(query, *others, **options)


def _attention(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, bf16_weights=False, bf16_gradient=False, **others
):
    """transformers' interface of attention. The mask: None, segments, or one of scores [batch, heads, queries, keys]."""
    if dropout:
        raise NotImplementedError(f"dropout: attention with dropout ({dropout}) is not supported; set attention_dropout to 0")
    for name in ("softcap", "s_aux", "position_bias"):
        if others.get(name) is not None:
            raise NotImplementedError(f"{name}: not supported by napier's attention")
    scale = None if scaling == query.shape[-1] ** -0.5 else scaling  # None: the library's own, whose rounding is defined
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    mask = attention_mask
    dense = not causal if mask is None else not _is_segments(mask)  # not causal: the keys may be those of another text
    if dense:
        mask = mask if mask is None or mask.dtype.is_floating_point else mask != 0
        output = _as_it_is(
            query, key, value, mask=mask, scale=scale, masked_rows="zero", bf16_weights=bf16_weights, bf16_gradient=bf16_gradient
        )
        return output.transpose(1, 2).contiguous(), None
    batch, heads, queries, _ = query.shape
    if attention_mask is None:
        attention_mask = torch.ones(batch, 1, 1, key.shape[2], dtype=torch.int64, device=query.device)
    s = sequences_of(attention_mask, queries)
    q, k, v = _packed(query, s.queries), _packed(key, s.keys), _packed(value, s.keys)
    output = _as_it_is(
        q,
        k,
        v,
        causal=causal,
        scale=scale,
        query_offsets=s.query_offsets,
        key_offsets=s.key_offsets,
        prefix=s.prefix,
        bf16_weights=bf16_weights,
        bf16_gradient=bf16_gradient,
    )
    return spread(output, s.queries, batch * queries).view(batch, queries, heads, -1), None


def _is_segments(mask):
    return mask.dtype == torch.int64 and mask.shape[2] == 1


def _mask(batch_size, q_length, kv_length, attention_mask=None, allow_is_causal_skip=True, local_size=None, **others):
    """transformers' interface of masks, for models that are not patched and have attn_implementation="napier"."""
    plain = allow_is_causal_skip and local_size is None and (attention_mask is None or attention_mask.ndim == 2)
    if not plain:
        return sdpa_mask(
            batch_size=batch_size,
            q_length=q_length,
            kv_length=kv_length,
            attention_mask=attention_mask,
            allow_is_causal_skip=False,
            local_size=local_size,
            **others,
        )
    return None if attention_mask is None else attention_mask[:, None, None, :kv_length].long()


AttentionInterface.register(_NAME, _attention)
AttentionMaskInterface.register(_NAME, _mask)


# ---- Modules -----------------------------------------------------------------------------------------------------------------
# Each function is the forward method of a module. Activations between modules are float32 in both modes; in bf16 the products
# and attention round what they read, attention its weights too. Where no gradient in float32 passes, the step before rounds, so
# that less is written and kept. `self._napier` is the mode.


class _Mode(NamedTuple):
    compute: str
    bf16_gradient: bool = False


class _Rounded(torch.autograd.Function):
    """x rounded to bf16, as float32. The gradient passes unrounded."""

    @staticmethod
    def forward(ctx, x):
        return x.bfloat16().float()

    @staticmethod
    def backward(ctx, grad):
        return grad


def _as_read(x, mode):
    return x.bfloat16() if mode.compute == "bf16" else x.float()


def _read_dtype(mode):
    """The dtype in which a step gives what only products or attention read."""
    rounds = mode.compute == "bf16" and (mode.bf16_gradient or not torch.is_grad_enabled())
    return torch.bfloat16 if rounds else torch.float32


def _embedding(self, input):
    return nn.functional.embedding(input, self.weight, self.padding_idx).float()


def _linear(self, input):
    return _torch.linear(input, self.weight, self.bias, **self._napier._asdict())


class _WithGradientOf(torch.autograd.Function):
    """The first of two equal-shaped tensors, whose gradient the second gets too."""

    @staticmethod
    def forward(ctx, x, other):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


def _adapted(self, input):
    """peft's LoRA of a linear layer, with the merged weights, which the sampler has too. The gradients of A and B are those of the
    product in the order of peft, scaling * (x A') B', which is much cheaper than that of the merged weights."""
    factors = _adapters.factors(self, "lora", self.training)
    weight = self.base_layer.weight
    with torch.no_grad():
        merged = _adapters.merged(weight, factors)
    if weight.requires_grad:
        merged = _WithGradientOf.apply(merged, weight.float())
    y = _torch.linear(input, merged, self.base_layer.bias, **self._napier._asdict())
    if not torch.is_grad_enabled():
        return y
    x = input.detach()
    for a, b, scaling in factors:
        inner = _torch.linear(x, a, compute=self._napier.compute) * scaling
        y = _WithGradientOf.apply(y, _torch.linear(inner, b))
    return y


def _norm(self, hidden_states, dtype=None):
    return _torch.rms_norm(hidden_states, self.weight, epsilon=self.variance_epsilon, dtype=dtype)


def _layer_norm(self, hidden_states):
    return _norm(self, hidden_states, _read_dtype(self._napier))


def _last_norm(self, hidden_states):
    states = _norm(self, hidden_states)
    return _Rounded.apply(states) if self._napier.compute == "bf16" else states


def _mlp(self, x):
    return self.down_proj(_torch.swiglu(self.gate_proj(x), self.up_proj(x), dtype=_read_dtype(self._napier)))


def _rotary_embedding(self, x, position_ids):
    cosines, sines = _torch.rotary_angles(position_ids.flatten(), *self._napier_frequencies)
    return cosines.view(*position_ids.shape, -1), sines.view(*position_ids.shape, -1)


# transformers 5.24 calls the cache of keys and values `cache`; before, and where a caller still does, it is `past_key_values`.
_CACHE = "cache" if "cache" in inspect.signature(transformers.Qwen3Model.forward).parameters else "past_key_values"


def _self_attention(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, cache=None, **kwargs):
    shape = *hidden_states.shape[:-1], -1, self.head_dim
    q, k, v = (project(hidden_states).view(shape) for project in (self.q_proj, self.k_proj, self.v_proj))
    if hasattr(self, "q_norm"):
        q, k = self.q_norm(q), self.k_norm(k)
    cosines, sines = (x.expand(*shape[:-2], -1).flatten(0, -2) for x in position_embeddings)
    dtype = _read_dtype(self._napier)
    q, k = (_torch.rotary(x.flatten(0, -3), cosines, sines, dtype=dtype).view(x.shape) for x in (q, k))
    q, k, v = (_as_read(x, self._napier).transpose(1, 2) for x in (q, k, v))
    cache = past_key_values if cache is None else cache
    if cache is not None:
        k, v = cache.update(k, v, self.layer_idx)
    output, _ = _attention(
        self,
        q,
        k,
        v,
        attention_mask,
        self.attention_dropout if self.training else 0.0,
        self.scaling,
        bf16_weights=self._napier.compute == "bf16",
        bf16_gradient=self._napier.bf16_gradient,
    )
    return self.o_proj(output.flatten(-2)), None


def _backbone(
    self,
    input_ids=None,
    attention_mask=None,
    position_ids=None,
    past_key_values=None,
    inputs_embeds=None,
    use_cache=None,
    cache=None,
    **kwargs,
):
    """Runs the model's own forward method on the tokens that the mask shows. Without a cache they run as one packed row.
    Padding rows are 0 at both ends, so they have no gradient."""
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("input_ids, inputs_embeds: expected exactly one of the two")
    given = input_ids if inputs_embeds is None else inputs_embeds
    use_cache = self.config.use_cache and not self.training if use_cache is None else use_cache
    cache = past_key_values if cache is None else cache
    segments, positions = _layout(given.shape[:2], attention_mask, position_ids, cache, kwargs)
    there = segments[:, -given.shape[1] :] > 0
    self._napier.begin(segments.shape[1], given)
    self._napier.note_length(positions, self.config.max_position_embeddings)
    if cache is None and not use_cache and segments.max() == 1:
        positions = positions.expand_as(there)
        packing = Packing(input_ids, positions, there)
        given, positions, segments = packing.pack(given), packing.pack(positions), packing.segments
        move = packing.unpack
    else:
        segments, move = segments[:, None, None], functools.partial(shown, there=there)
    wants_tuple = kwargs.pop("return_dict", True) is False
    embeds = self.embed_tokens(given) if inputs_embeds is None else given.float()
    if segments.shape[1] == 1:
        embeds = shown(embeds, there)
    kwargs[_CACHE] = cache
    out = type(self).forward(
        self, inputs_embeds=embeds, attention_mask=segments, position_ids=positions, use_cache=use_cache, return_dict=True, **kwargs
    )
    out.last_hidden_state = move(out.last_hidden_state)
    if out.hidden_states is not None:
        out.hidden_states = (*(None if x is None else move(x) for x in out.hidden_states[:-1]), out.last_hidden_state)
    return out.to_tuple() if wants_tuple else out


def _layout(shape, mask, positions, cache, kwargs):
    """(segments [batch, keys], position_ids). Positions count the tokens of a sequence, not its padding."""
    batch, length = shape
    if getattr(cache, "is_compileable", False):
        raise NotImplementedError(f"{_CACHE}: a patched model has no {type(cache).__name__}; use a DynamicCache (generate's default)")
    past = 0 if cache is None else cache.get_seq_length()
    if mask is None:
        return _layout_of_positions(batch, length, past, positions, kwargs)
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        kind = f"{mask.ndim} dimensions" if isinstance(mask, Tensor) else type(mask).__name__
        raise NotImplementedError(f"attention_mask: expected [batch, length], got {kind}; a patched model makes its own causal mask")
    if mask.shape != (batch, past + length):
        raise ValueError(f"attention_mask: expected shape {(batch, past + length)}, got {tuple(mask.shape)}")
    segments = (mask != 0).long()
    return segments, (segments.cumsum(1) - 1).clamp(min=0)[:, -length:] if positions is None else positions


def _layout_of_positions(batch, length, past, positions, kwargs):
    """The same without a mask. Positions that do not continue begin another sequence."""
    segments = torch.ones(batch, past + length, dtype=torch.int64)
    if positions is None:
        if any(kwargs.get(name) is not None for name in ("cu_seq_lens_q", "cu_seq_lens_k")):
            raise ValueError("position_ids: missing for packed sequences (cu_seq_lens_q)")
        return segments, torch.arange(past, past + length).unsqueeze(0)
    if past == 0:
        segments[:, 1:] += (positions.expand(batch, -1).diff() != 1).cumsum(1)
    return segments, positions


# ---- What can be patched -----------------------------------------------------------------------------------------------------


def _refuse(name, what, way_out):
    raise NotImplementedError(f"{name}: {what}; {way_out}")


def _head_name(model):
    """The attribute of the head, if the model is one of those that can be patched."""
    for kind, head in _HEADS.items():
        for family in _FAMILIES.values():
            if isinstance(model, getattr(transformers, family + kind)):
                return head
    names = ", ".join(family + kind for family in _FAMILIES.values() for kind in _HEADS)
    way_out = "patch it before torch.compile" if hasattr(model, "_orig_mod") else f"expected one of {names}"
    _refuse("model", f"cannot patch a {type(model).__name__}", way_out)


def _check_config(config):
    rope = config.rope_parameters or {}
    if rope.get("rope_type", "default") not in ("default", "linear", "llama3", "yarn"):
        _refuse("rope_type", repr(rope["rope_type"]), "use default, linear, llama3 or yarn")
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        _refuse("partial_rotary_factor", f"{rope['partial_rotary_factor']} is not supported", "expected 1")
    if config.hidden_act not in ("silu", "swish"):
        _refuse("hidden_act", f"{config.hidden_act!r} is not supported", "expected 'silu'")
    if config.attention_dropout:
        _refuse("attention_dropout", f"{config.attention_dropout} is not supported", "set it to 0")
    if not getattr(config, "is_causal", True):
        _refuse("is_causal", "attention in both directions is not supported", "set it to True")


def _window(config):
    """The sliding window of some layers, or None."""
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    return getattr(config, "sliding_window", None) if sliding or config.model_type == "mistral" else None


def _modules(model, head):
    """The modules of a model with their new forward methods: (name, module, kind, forward). kind is the type that a module must
    have, or the end of its name."""
    backbone = model.model
    yield "model", backbone, "Model", _backbone
    yield "model.embed_tokens", backbone.embed_tokens, nn.Embedding, _embedding
    yield "model.rotary_emb", backbone.rotary_emb, "RotaryEmbedding", _rotary_embedding
    yield "model.norm", backbone.norm, "RMSNorm", _last_norm
    yield head, getattr(model, head), nn.Linear, _linear
    for i, layer in enumerate(backbone.layers):
        name = f"model.layers.{i}"
        yield name, layer, "DecoderLayer", None
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{name}.{norm}", getattr(layer, norm), "RMSNorm", _layer_norm
        yield f"{name}.self_attn", layer.self_attn, "Attention", _self_attention
        yield f"{name}.mlp", layer.mlp, "MLP", _mlp
        for part in (layer.self_attn, layer.mlp):
            where = f"{name}.{'self_attn' if part is layer.self_attn else 'mlp'}"
            for child, module in part.named_children():
                if child.endswith("_proj"):
                    yield f"{where}.{child}", module, nn.Linear, _adapted if _adapters.is_lora(module) else _linear
                elif child.endswith("_norm"):
                    yield f"{where}.{child}", module, "RMSNorm", _norm


def _divided(name, forward, tied):
    """The forward method of a module on a mesh."""
    parallel, last = _parallel(), name.rpartition(".")[2]
    if forward is _linear and not (tied and "." not in name):
        return parallel.whole if "." not in name else parallel.from_parts if last in ("o_proj", "down_proj") else parallel.to_parts
    return parallel.head_norm(_norm) if last in ("q_norm", "k_norm") else forward


def _check_module(name, module, kind, family, patched_before):
    if kind is nn.Linear and _adapters.is_lora(module) and name.endswith("_proj"):
        _adapters.factors(module, name, training=True)
        for part in (module.base_layer, *module.lora_A.values(), *module.lora_B.values()):
            _check_module(name, part, nn.Linear, family, patched_before)
        kind = type(module)
    expected = kind if isinstance(kind, type) else getattr(sys.modules[family.__module__], _kind_name(family, kind), None)
    if type(module) is not expected:
        _refuse(
            name,
            f"a {type(module).__name__} cannot be patched (only LoRA of layers' products can, and no quantised layers)",
            "merge or unload them first",
        )
    if "forward" in vars(module) and module not in patched_before:
        _refuse(name, "the module has a forward method of its own", "remove what replaced it, such as the hooks of accelerate")
    for parameter, x in module.named_parameters(recurse=False):
        if x.device.type != "cpu":
            _refuse(f"{name}.{parameter}", f"it is on {x.device}, and a patched model computes on the CPU", "use model.cpu()")
        if x.dtype not in _DTYPES:
            _refuse(f"{name}.{parameter}", f"{x.dtype} is not supported", "use float32, float16 or bfloat16")


def _kind_name(family, kind):
    return family.__name__.removesuffix("Model") + kind


def _frequencies(config):
    """The frequencies of the rotation and the factor of cosines and sines, as napier's models have them."""
    rope = dict(config.rope_parameters)
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    names = (
        "factor",
        "original_max_position_embeddings",
        "low_freq_factor",
        "high_freq_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "attention_factor",
        "truncate",
    )
    options = {name: rope[name] for name in names if rope.get(name) is not None}
    if rope.get("rope_type") == "yarn" and "factor" not in options:
        most = config.max_position_embeddings
        options["factor"] = most / options.setdefault("original_max_position_embeddings", most)
    return _torch.rotary_frequencies(dim, theta=rope["rope_theta"], scaling=rope.get("rope_type", "default"), **options)


# ---- patch, unpatch ----------------------------------------------------------------------------------------------------------


class _Patch:
    """What a patched model keeps: its mode, the modules that have changed, where modules were, the former attention, its
    and its sliding window."""

    def __init__(self, mode, modules, places, head, config, ranks):
        self.mode, self.modules, self.places, self.head, self.ranks = mode, modules, places, head, ranks
        self.attention, self.window = config._attn_implementation, _window(config)
        self.too_long = False  # whether it has warned

    def begin(self, length, given):
        """Before each pass over this many columns. Marks the head's weights for TRL's fused head, which gets nothing else of
        the model; a copy of the weights does not have the mark."""
        for name, parent, child, module in self.places:
            now = parent._modules.get(child)
            if now is not module:
                _refuse(
                    name, f"a {type(now).__name__} has taken its place since napier.hf.patch, and has other bits", "patch the model again"
                )
        for module in self.modules:
            if getattr(vars(module).get("forward"), "args", (None,))[0] is not module:
                name = next(name for name, _, _, there in self.places if there is module)
                _refuse(
                    name,
                    "its forward method has been replaced since napier.hf.patch, and the new one has other bits",
                    "remove what replaced it, and patch the model again",
                )
        if self.window is not None and length > self.window:
            raise NotImplementedError(
                f"input_ids: {length} tokens with padding and cache are more than the sliding window of "
                f"{self.window}, and longer texts are not supported"
            )
        if self.ranks is not None:
            self.ranks.compare("input_ids", given)
        self.head.weight._napier = self.mode
        _patch_trl()

    def note_length(self, positions, most):
        """Warns once of positions beyond those that the model was trained for."""
        tokens = int(positions.max()) + 1 if positions.numel() and not self.too_long else 0
        if tokens > most:
            self.too_long = True
            warnings.warn(
                f"a sequence of {tokens} tokens is longer than the {most} positions that the model was "
                "trained for (max_position_embeddings)"
            )


def is_patched(model):
    """Whether patch has changed this model.

    Examples
    --------
    >>> import napier.hf, transformers
    >>> model = napier.hf.patch(transformers.AutoModelForCausalLM.from_pretrained("Qwen3-0.6B"))
    >>> napier.hf.is_patched(model), napier.hf.is_patched(napier.hf.unpatch(model))
    (True, False)
    """
    return _state(model) is not None


def _state(model):
    """What patch has kept of a model, or of the one within a PeftModel; None if it is not patched."""
    state = getattr(getattr(_adapters.base_of(model), "model", None), "_napier", None)
    return state if isinstance(state, _Patch) else None


def patch(model, compute="f32", bf16_gradient=False, mesh=None):
    """Makes a model of transformers compute with Napier, and returns it.

    Its hidden states, logits, log-probabilities and scores then have the bits of napier's model of the same weights, in any
    batch, with any padding and number of threads, and they have gradients.

    A model that is patched already gets the mode of this call. After an error the model is as before.

    Parameters
    ----------
    model : Qwen3, Qwen2, Llama or Mistral, ForCausalLM or ForSequenceClassification, on the CPU; also with LoRA adapters of peft
    compute : 'f32' or 'bf16'
        bf16: products and attention read activations rounded to bf16, and so are the weights of attention. All arithmetic is
        float32 in both modes. The model's weights are used as they are stored: float32, float16 or bfloat16.
    bf16_gradient : bool
        For compute 'bf16' and a model whose products have weights of bfloat16. Gradients are rounded to bf16 before they are
        multiplied, and so are those with respect to what products read, as in PyTorch. This makes a step of training faster, most of all on a matrix
        engine. No bit of the forward pass changes.
    mesh : a DeviceMesh of one dimension, over whose ranks the products are divided by their outputs, with the same bits for any number
        of ranks. Weights become DTensors. All ranks call the model with the same inputs (docs/scale.md)

    Examples
    --------
    >>> import napier.hf, torch, transformers
    >>> model = napier.hf.patch(transformers.AutoModelForCausalLM.from_pretrained("Qwen3-0.6B"))
    >>> with torch.no_grad():
    ...     logits = model(torch.tensor([[5, 6, 7]])).logits[0]
    ...
    >>> bool((logits.numpy() == napier.CausalLM("Qwen3-0.6B").forward([5, 6, 7])).all())
    True
    """
    if compute not in _MODES:
        raise ValueError(f"compute: expected 'f32' or 'bf16', got {compute!r}")
    mode = _Mode(compute, bool(bf16_gradient))
    if bf16_gradient and compute != "bf16":
        raise ValueError(f"bf16_gradient: expected compute 'bf16' with it, got {compute!r}")
    given, model = model, _adapters.base_of(model)
    head = _head_name(model)
    _adapters.check_model(given)
    _check_config(model.config)
    modules = list(_modules(model, head))
    patched_before = set(model.model._napier.modules) if is_patched(model) else ()
    for name, module, kind, _ in modules:
        _check_module(name, module, kind, type(model.model), patched_before)
        if bf16_gradient and _adapters.is_lora(module):
            _refuse("bf16_gradient", f"{name} has an adapter, whose merged weights are float32", "leave bf16_gradient out")
        if bf16_gradient and kind is nn.Linear and module.weight.dtype != torch.bfloat16:
            _refuse("bf16_gradient", f"{name}.weight is {module.weight.dtype}", "use a model of bfloat16")
    ranks = None if mesh is None else _ranks_of(model, mesh, given is not model, bf16_gradient)
    if getattr(model, head).bias is not None:
        _refuse(f"{head}.bias", "a head with a bias is not supported", "set it to None if it is 0")
    frequencies = _frequencies(model.config)
    unpatch(model)
    tied = getattr(model, head).weight is model.model.embed_tokens.weight
    changed = [
        (module, forward if ranks is None else _divided(name, forward, tied)) for name, module, _, forward in modules if forward is not None
    ]
    places = [
        (name, model.get_submodule(parent), child, module) for name, module, _, _ in modules for parent, _, child in [name.rpartition(".")]
    ]
    state = _Patch(mode, [module for module, _ in changed], places, getattr(model, head), model.config, ranks)
    for module, forward in changed:
        module._napier = mode
        module.forward = functools.partial(forward, module)  # unlike a method, it can be pickled
        if ranks is not None:
            module._napier_ranks = ranks
            if type(module) is nn.Linear and forward is not _linear:
                _parallel().divide(module, ranks)
    model.model.rotary_emb._napier_frequencies = frequencies
    model.model._napier = state
    model.config._attn_implementation = _NAME
    return given


def _parallel():
    from ._torch import tensor_parallel

    return tensor_parallel


def _ranks_of(model, mesh, has_adapters, bf16_gradient):
    """The ranks of a mesh, which have the same model."""
    ranks = _parallel().Ranks(mesh)
    if has_adapters or any(_adapters.is_lora(module) for module in model.modules()):
        _refuse("mesh", "a model with adapters cannot be divided", "merge them first")
    if bf16_gradient:
        _refuse("bf16_gradient", "not supported with a mesh", "leave it out")
    if not hasattr(model, "lm_head"):
        _refuse("mesh", f"a {type(model).__name__} cannot be divided", "use a ForCausalLM")
    _parallel().check(model.config, ranks)
    if not is_patched(model) or _state(model).ranks is None:
        ranks.compare("model", *model.parameters())
    return ranks


def unpatch(model):
    """Undoes patch, and returns the model. A model that is not patched stays as it is.

    Examples
    --------
    >>> import napier.hf, transformers
    >>> model = napier.hf.patch(transformers.AutoModelForCausalLM.from_pretrained("Qwen3-0.6B"))
    >>> napier.hf.unpatch(model) is model, napier.hf.is_patched(model)
    (True, False)
    """
    state = _state(model)
    if state is None:
        return model
    given, model = model, _adapters.base_of(model)
    for module in state.modules:
        if state.ranks is not None:
            _parallel().unite(module)
            del module._napier_ranks
        del module.forward, module._napier
    del model.model.rotary_emb._napier_frequencies
    vars(state.head.weight).pop("_napier", None)
    model.config._attn_implementation = state.attention
    return given


@contextlib.contextmanager
def patched(model, compute="f32", bf16_gradient=False):
    """patch for the length of a with statement.

    Examples
    --------
    >>> import napier.hf, torch, transformers
    >>> model = transformers.AutoModelForCausalLM.from_pretrained("Qwen3-0.6B")
    >>> with torch.no_grad(), napier.hf.patched(model):
    ...     logits = model(torch.tensor([[5, 6, 7]])).logits
    ...
    >>> napier.hf.is_patched(model)
    False
    """
    was = _state(model).mode if is_patched(model) else None
    patch(model, compute, bf16_gradient)
    try:
        yield model
    finally:
        unpatch(model) if was is None else patch(model, *was)


# ---- Log-probabilities -------------------------------------------------------------------------------------------------------


def _logprobs(hidden, weight, mode, ids, temperature, entropy):
    """(logprobs [N], entropies [N] or None) from rows of hidden states."""
    if hasattr(weight, "device_mesh"):
        r = _parallel().token_logprobs(_as_read(hidden, mode), weight, ids, temperature=temperature, entropy=entropy)
        return r.logprobs, r.entropy
    r = _torch.linear_token_logprobs(
        _as_read(hidden, mode), weight, ids, temperature=temperature, entropy=entropy, bf16_gradient=mode.bf16_gradient
    )
    return r.logprobs, r.entropy


def token_logprobs(model, input_ids, attention_mask, completion_length, temperature=1.0, entropy=False):
    """Log-probabilities [B, completion_length] of the last tokens of each row, with gradients and with the bits of
    napier.CausalLM.score; with entropy=True (logprobs, entropies).

    The logits are never stored, and only these tokens run through the head. Tokens that the mask hides have 0.

    Parameters
    ----------
    model : a patched ForCausalLM
    input_ids, attention_mask : [B, L]; the mask may be None
    completion_length : int, 0 .. L - 1

    Examples
    --------
    >>> import napier.hf, torch, transformers
    >>> model = napier.hf.patch(transformers.AutoModelForCausalLM.from_pretrained("Qwen3-0.6B"))
    >>> logprobs = napier.hf.token_logprobs(model, torch.tensor([[5, 6, 7, 8]]), None, completion_length=2)
    >>> logprobs.sum().backward()  # the weights have gradients now
    >>> scored = napier.CausalLM("Qwen3-0.6B").logprobs_for([5, 6], [7, 8])
    >>> bool((logprobs[0].detach().numpy() == scored).all())
    True
    """
    model = _adapters.base_of(model)
    if not is_patched(model) or model.model._napier.head is not model.get_output_embeddings():
        raise ValueError("model: expected a ForCausalLM that napier.hf.patch has changed")
    batch, length = input_ids.shape
    if not 0 <= completion_length < length:
        raise ValueError(f"completion_length: expected 0 .. {length - 1}, got {completion_length}")
    there = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    there = there[:, length - completion_length :] != 0
    states = model.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
    hidden = states[:, length - completion_length - 1 : -1][there]
    ids = input_ids[:, length - completion_length :][there]
    found = _logprobs(hidden, model.lm_head.weight, model.model._napier.mode, ids, temperature, entropy)
    logprobs, entropies = (None if x is None else x.new_zeros(there.shape).masked_scatter(there, x) for x in found)
    return (logprobs, entropies) if entropy else logprobs


# ---- TRL ---------------------------------------------------------------------------------------------------------------------
# The trainers of TRL compute log-probabilities from hidden states and the head's weights, in _ChunkedLogProbFunction of
# trl.trainer.utils. It is replaced by an object that does so by Napier for a patched model, and calls TRL's for all others.
# Where _use_triton is true, TRL gives it only the tokens that are rated; after a pass of a patched model it is.

_pass = threading.local()


class _Head:
    def __init__(self, former):
        self.former = former

    def apply(self, hidden, weight, bias, targets, temperature, chunk_size, softcap=None, scale=1.0, outputs=("log_probs",)):
        mode = getattr(weight, "_napier", None)
        arguments = hidden, weight, bias, targets, temperature, chunk_size, softcap, scale, outputs
        if mode is None or bias is not None or softcap is not None or scale != 1.0:
            return self.former.apply(*arguments)
        logprobs, entropy = _logprobs(hidden, weight, mode, targets, temperature, "entropy" in outputs)
        others = None, None, None
        if set(outputs) - {"log_probs", "entropy"}:
            with torch.no_grad():
                others = self.former.apply(*arguments)[2:]
        return logprobs, entropy, *others


def _compacts(former):
    def compacts(device):
        was, _pass.patched = getattr(_pass, "patched", False), False
        return was or former(device)

    return compacts


@functools.cache  # once is enough
def _warn_of_other_trl(version):
    warnings.warn(
        f"trl.trainer.utils of TRL {version} has no _ChunkedLogProbFunction (TRL 1.16 has), so TRL's trainers compute "
        "log-probabilities from a patched model's hidden states by their own head, whose bits are not Napier's; "
        "napier.hf.token_logprobs has Napier's",
        RuntimeWarning,
    )


def _patch_trl():
    """If TRL is there, replaces its head. Called before each pass, because TRL may be imported late."""
    _pass.patched = True
    utils = sys.modules.get("trl.trainer.utils")
    if utils is None:
        return
    former = getattr(utils, "_ChunkedLogProbFunction", None)
    if former is None:
        _warn_of_other_trl(getattr(sys.modules.get("trl"), "__version__", "of unknown version"))
    elif not isinstance(former, _Head):
        utils._ChunkedLogProbFunction = _Head(former)
        if hasattr(utils, "_use_triton"):
            utils._use_triton = _compacts(utils._use_triton)


# ---- Trainers ----------------------------------------------------------------------------------------------------------------
# A reference model that a trainer of TRL loads or is given computes as the trained model does: otherwise the divergence between
# equal weights is not 0. Trainer.train, evaluate and predict see to it, whose class may be imported later.

_TRAINER = "transformers.trainer"


def _follow(trainer):
    """Gives the reference model of a trainer the mode of its model: patches it, patches it again, or undoes that."""
    model, reference = (
        None if x is None else trainer.accelerator.unwrap_model(x) for x in (trainer.model, getattr(trainer, "ref_model", None))
    )
    if not isinstance(reference, nn.Module) or reference is model:
        return
    if not is_patched(model):
        unpatch(reference)
        return
    mode = _state(model).mode.compute
    if is_patched(reference) and _state(reference).mode.compute == mode:
        return
    if getattr(trainer.args, "precompute_ref_log_probs", False):
        _refuse(
            "precompute_ref_log_probs",
            "the trainer has computed log-probabilities of a reference model that is not patched",
            "set it to False, or pass a patched ref_model",
        )
    try:
        patch(reference, mode)
    except NotImplementedError as error:
        raise NotImplementedError(f"ref_model: {error}") from None


def _followed(method):
    @functools.wraps(method)
    def followed(self, *args, **kwargs):
        _follow(self)
        return method(self, *args, **kwargs)

    return followed


def _patch_trainer(module):
    for name in ("train", "evaluate", "predict"):
        setattr(module.Trainer, name, _followed(getattr(module.Trainer, name)))


class _Finder:
    """Changes the class as soon as its module is imported."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != _TRAINER:
            return None
        sys.meta_path.remove(cls)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            _patch_trainer(module)

        spec.loader.exec_module = exec_module
        return spec


if _TRAINER in sys.modules:
    _patch_trainer(sys.modules[_TRAINER])
else:
    sys.meta_path.insert(0, _Finder)
