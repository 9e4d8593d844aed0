"""Small random models of every family, made by transformers and written as checkpoints; and what Napier makes of them."""
import copy
import json
import os
import tempfile

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from napier_c import napier
from support import Skip

CONFIG = dict(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              intermediate_size=96, vocab_size=307, max_position_embeddings=4096, rope_theta=1e6, rms_norm_eps=1e-6,
              tie_word_embeddings=True, attention_bias=False, use_sliding_window=False)


def make(dtype=torch.float32, seed=1, spread=0.3, family="qwen3", labels=0, **changes):
    """A random model, in eval mode. Its weights are exact in `dtype`; it computes in float32. labels: of a reward model."""
    if not hasattr(napier.library, "napier_model_load"):
        raise Skip("the library is built without models")
    torch.manual_seed(seed)
    kind = AutoModelForSequenceClassification if labels else AutoModelForCausalLM
    config = AutoConfig.for_model(family, **{**CONFIG, **({"num_labels": labels} if labels else {}), **changes})
    model = kind.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            middle = 1.0 if "norm" in name else 0.0
            weight.copy_(torch.randn_like(weight) * spread / weight.shape[-1] ** 0.25 + middle)
            weight.copy_(weight.to(dtype).float())
    return model.eval()


def save(model, directory, dtype=torch.float32, shard="5GB", old_config=False):
    """Writes it as a checkpoint. old_config: rope_theta at the top, and torch_dtype, as transformers 4 wrote it."""
    copy.deepcopy(model).to(dtype).save_pretrained(directory, max_shard_size=shard)
    if old_config:
        path = os.path.join(directory, "config.json")
        config = json.load(open(path, encoding="utf-8"))
        config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
        config["torch_dtype"] = config.pop("dtype", "float32")
        json.dump(config, open(path, "w", encoding="utf-8"))


class Model:
    """A model that Napier has loaded."""

    def __init__(self, directory, bf16=False, memory=0):
        options = napier.make("napier_model_options", compute=int(bf16), memory=memory)
        self.pointer = napier.create("napier_model_load", str(directory), options)

    def __del__(self):
        napier.call("napier_model_destroy", self.pointer)

    def info(self):
        info = napier.make("napier_model_info")
        napier.call("napier_model_get_info", self.pointer, info)
        return info

    def forward(self, ids, offsets=None):
        """States and logits of every position."""
        ids, info = np.asarray(ids, np.int64), self.info()
        offsets = np.asarray([0, ids.size] if offsets is None else offsets, np.int64)
        hidden = np.empty((ids.size, info.hidden), np.float32)
        logits = np.empty((ids.size, info.labels or info.vocabulary), np.float32)
        napier.call("napier_model_forward", self.pointer, ids, offsets, hidden, logits, None, None)
        return hidden, logits

    def batch(self, prompts, responses, prompt_of=None):
        """The batch of these lists of ids."""
        flat = {}
        for name, lists in (("prompt", prompts), ("response", responses)):
            flat[name + "_ids"] = np.array([i for ids in lists for i in ids], np.int64)
            flat[name + "_offsets"] = np.cumsum([0] + [len(ids) for ids in lists], dtype=np.int64)
        if prompt_of is not None:
            flat["prompt_of"] = np.asarray(prompt_of, np.int64)
        return napier.make("napier_score_batch", **flat), int(flat["response_offsets"][-1])

    def score(self, prompts, responses, prompt_of=None, **options):
        """Log-probabilities, entropies, argmax and is_greedy of all tokens of the responses."""
        batch, tokens = self.batch(prompts, responses, prompt_of)
        logprobs, entropy = np.empty(tokens, np.float32), np.empty(tokens, np.float32)
        argmax, greedy = np.empty(tokens, np.int64), np.empty(tokens, np.uint8)
        results = napier.make("napier_score_results", logprobs=logprobs, entropy=entropy, argmax=argmax,
                              is_greedy=greedy)
        napier.call("napier_model_batch_logprobs", self.pointer, batch, napier.make("napier_score_options", **options),
                    results)
        return logprobs, entropy, argmax, greedy

    def rewards(self, prompts, responses, prompt_of=None, **options):
        batch, _ = self.batch(prompts, responses, prompt_of)
        pairs = len(responses)
        out = np.empty((pairs, self.info().labels), np.float32)
        napier.call("napier_model_rewards", self.pointer, batch, napier.make("napier_score_options", **options), out)
        return out

    def plan(self, prompts, responses, prompt_of=None, **options):
        plan = napier.make("napier_score_plan")
        napier.call("napier_model_batch_plan", self.pointer, self.batch(prompts, responses, prompt_of)[0],
                    napier.make("napier_score_options", **options), plan)
        return plan


def checkpoint(model, **how):
    """The model in a directory that lasts as long as the answer's second part."""
    place = tempfile.TemporaryDirectory()
    save(model, place.name, **how)
    return place
