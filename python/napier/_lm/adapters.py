"""LoRA adapters of peft, merged: the weights that score, sample and train are W + scaling * (B A), in float32.

B A is napier.matmul's, so the merged weights have the same bits everywhere. It is then multiplied by scaling and added to W, which
is widened exactly; each step rounds once. Nothing is rounded to W's dtype.
"""

import json
import math
import mmap
import os
import re
import sys

import numpy as np

from .. import _napier

FILES = ("adapter_config.json", "adapter_model.safetensors")
_PREFIX = "base_model.model."
_LAYERS = "peft.tuners.lora.layer"

# What an adapter_config.json may say besides target_modules, which the names of the tensors repeat.
_FREE = {
    *("auto_mapping", "base_model_name_or_path", "exclude_modules", "inference_mode", "layers_pattern", "layers_to_transform"),
    *("lora_dropout", "megatron_core", "peft_type", "peft_version", "qalora_group_size", "revision", "runtime_config", "target_modules"),
    *("task_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias", "init_lora_weights", "eva_config"),
    "ensure_weight_tying",
}
_STARTS = (None, True, False, "gaussian", "orthogonal", "eva")  # of init_lora_weights: others change the weights below the adapter


def _refuse(name, what, way_out="merge the adapter with peft (merge_and_unload), and save the model"):
    raise NotImplementedError(f"{name}: {what}; {way_out}")


def merged(weight, adapters):
    """weight, widened to float32, with each (A, B, scaling) of adapters added in turn: tensors of PyTorch, or arrays."""
    weight = _single(weight)
    for a, b, scaling in adapters:
        product = _napier.matmul(_single(b), _single(a))
        product *= scaling
        weight = weight + product
    return weight


def _single(x):
    x = x.detach() if hasattr(x, "detach") else x
    return x.float() if hasattr(x, "float") else x.astype(np.float32, copy=False)


# ---- Modules of peft ---------------------------------------------------------------------------------------------------------


def base_of(model):
    """The model within a PeftModel, or the model itself."""
    get = getattr(model, "get_base_model", None)
    return get() if get is not None and hasattr(model, "peft_config") else model


def is_lora(module):
    """Whether this is peft's LoRA of a plain linear layer."""
    kind = getattr(sys.modules.get(_LAYERS), "Linear", None)
    return type(module) is kind and type(module.base_layer).__module__ == "torch.nn.modules.linear"


def check_config(config):
    """Refuses what peft does beside LoRA's two factors. config: a LoraConfig's fields."""
    kind = getattr(config.get("peft_type"), "value", config.get("peft_type"))
    if kind != "LORA":
        _refuse("peft_type", f"{kind} is not supported", "use LORA")
    if config.get("bias", "none") != "none":
        _refuse("bias", f"{config['bias']!r} is not supported, only 'none'")
    for name, value in config.items():
        if value and name not in _FREE:
            _refuse(name, f"{value!r} is not supported in an adapter")


def check_model(model):
    """Refuses a model with adapters of which some would have no effect, or another one than LoRA's."""
    for config in (getattr(model, "peft_config", None) or {}).values():
        check_config(vars(config))
    for name, module in base_of(model).named_modules() if _LAYERS in sys.modules else ():
        if hasattr(module, "base_layer"):
            if not is_lora(module) or not name.endswith("_proj"):
                _refuse(name, f"a {type(module).__name__} of peft is not supported, only LoRA of the layers' products")
            factors(module, name)


def factors(module, name, training=False):
    """The (A, B, scaling) of the adapters that are active in a layer: none where they are disabled."""
    if module.merged:
        _refuse(name, "its adapter is merged", "call unmerge_adapter, or merge_and_unload and patch that")
    if module.fan_in_fan_out:
        _refuse(name, "fan_in_fan_out is not supported")
    if module.disable_adapters:
        return []
    active = [adapter for adapter in module.active_adapters if adapter in module.lora_A]
    for adapter in active:
        if adapter in module.lora_variant:
            _refuse(name, f"{type(module.lora_variant[adapter]).__name__} is not supported, only LoRA itself")
        if module.lora_bias.get(adapter):
            _refuse(name, "lora_bias is not supported")
        if training and getattr(module.lora_dropout[adapter], "p", 0) > 0:
            _refuse(name, f"lora_dropout {module.lora_dropout[adapter].p} is not supported in training", "set it to 0")
    return [(module.lora_A[x].weight, module.lora_B[x].weight, module.scaling[x]) for x in active]


def state_dict(model):
    """The state_dict of a model of transformers. Where it has adapters, they are merged, under the names of the model without them."""
    check_model(model)
    base = base_of(model)
    layers = {name: module for name, module in base.named_modules() if hasattr(module, "base_layer")}
    if not layers:
        return base.state_dict()
    found = {}
    for name, x in base.state_dict().items():
        place, _, rest = name.partition(".base_layer.")
        if rest:
            x = merged(x, factors(layers[place], place)) if rest == "weight" else x
            found[f"{place}.{rest}"] = x
        elif ".lora_" not in name:
            found[name] = x
    return found


# ---- Files -------------------------------------------------------------------------------------------------------------------


def _bfloat16():
    """A dtype of bfloat16 for arrays."""
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError("adapter: weights of bfloat16 need ml_dtypes (pip install ml_dtypes)") from None
    return np.dtype(ml_dtypes.bfloat16)


def _tensors(path):
    """The tensors of a .safetensors file, mapped."""
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        if entry["dtype"] not in ("F32", "F16", "BF16"):
            raise ValueError(f"{path}: {name}: {entry['dtype']} is not supported, only F32, F16 and BF16")
        dtype = _bfloat16() if entry["dtype"] == "BF16" else np.dtype("<f4" if entry["dtype"] == "F32" else "<f2")
        first, last = entry["data_offsets"]
        x = np.frombuffer(data, dtype, math.prod(entry["shape"]), 8 + size + first)
        if last - first != x.nbytes:
            raise ValueError(f"{path}: {name}: {last - first} bytes, not {x.nbytes}")
        found[name] = (x if x.flags.aligned else x.copy()).reshape(entry["shape"])
    return found


def _weights(directory):
    index = os.path.join(directory, "model.safetensors.index.json")
    names = ["model.safetensors"]
    if os.path.exists(index):
        with open(index, encoding="utf-8") as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
    found = {}
    for name in names:
        found.update(_tensors(os.path.join(directory, name)))
    return found


def _rank_and_alpha(config, layer):
    """As peft finds them: patterns match the end of a layer's name."""

    def of(field, pattern):
        for key, value in (config.get(pattern) or {}).items():
            if re.match(rf"(.*\.)?({key})$", layer):
                return value
        return config[field]

    return of("r", "rank_pattern"), of("lora_alpha", "alpha_pattern")


def load(directory, adapter):
    """(config.json's text, tensors) of the model in a directory with the adapter of a directory merged."""
    if not os.path.isdir(directory):
        _refuse("adapter", f"{directory} is not a folder of safetensors", "convert the model to one")
    path = os.path.join(adapter, FILES[0])
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    check_config(config)
    if config.get("init_lora_weights") not in _STARTS:
        _refuse("init_lora_weights", f"{config['init_lora_weights']!r} is not supported: it changes the weights below the adapter")
    weights = _weights(directory)
    pairs: dict[str, dict[str, np.ndarray]] = {}
    for name, x in _tensors(os.path.join(adapter, FILES[1])).items():
        layer, _, side = name.removeprefix(_PREFIX).removesuffix(".weight").rpartition(".lora_")
        if side not in ("A", "B") or not layer.endswith("_proj") or f"{layer}.weight" not in weights:
            _refuse(name, "not a factor of a product of this model's layers")
        pairs.setdefault(layer, {})[side] = x
    for layer, pair in pairs.items():
        rank, alpha = _rank_and_alpha(config, layer)
        weight, shapes = weights[f"{layer}.weight"], {side: x.shape for side, x in pair.items()}
        if rank < 1 or shapes != {"A": (rank, weight.shape[1]), "B": (weight.shape[0], rank)}:
            raise ValueError(f"{layer}: factors of shapes {shapes} do not fit rank {rank} and weights {weight.shape}")
        scaling = alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
        weights[f"{layer}.weight"] = merged(weight, [(pair["A"], pair["B"], scaling)])
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        return file.read(), weights
