"""How often napier.audit names a planted fault, and how often it names one where there is none.

    python tools/audit_matrix.py [--size 200x100] [--seeds 1] [--healthy 200] [--least] [--only WORD] [--kinds qwen3,llama]

Tiny random models of transformers (Qwen3, Llama, one of SmolLM2's shape, Mistral, Qwen3 with experts) in float32, and Qwen3 in bfloat16,
report the numbers; Napier is the referee. Needs PyTorch, transformers and napier. tests/support/audit_faults.py has the faults. A run prints one row a
fault: how often it was named, with nothing else, of how many; and with --least the smallest number of tokens at which each model's was,
among those of LEAST, of beginnings of the same responses: a column a model, - where it was not."""

import argparse
import itertools
import math
import pathlib
import sys
import tempfile
import time

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import napier
from napier._audit import run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "support"))
import audit_faults

CONFIG = dict(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=32, intermediate_size=96)
CONFIG |= dict(vocab_size=307, max_position_embeddings=4096, bos_token_id=audit_faults.BOS, eos_token_id=None, tie_word_embeddings=True)
EXPERTS = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=48, decoder_sparse_step=1, norm_topk_prob=True)
SMOLLM2 = dict(hidden_size=72, num_attention_heads=9, num_key_value_heads=3, head_dim=8, intermediate_size=192, vocab_size=1024)
LEAST = [(2, 25), (4, 25), (8, 25), (16, 25), (16, 50), (32, 50), (64, 50), (128, 100)]  # responses, tokens of each
KINDS = {
    "qwen3": ("qwen3", {}, "f32"),
    "llama": ("llama", {}, "f32"),
    "smollm2": ("llama", SMOLLM2, "f32"),
    "mistral": ("mistral", {}, "f32"),
    "moe": ("qwen3_moe", EXPERTS, "f32"),
    "qwen3 bf16": ("qwen3", {}, "bf16"),
}


def make(family, changes, folder, seed=1, spread=0.3):
    """Random weights that bfloat16 holds, so that an engine in bfloat16 has the same ones."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **CONFIG | changes), attn_implementation="eager")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            middle = 1.0 if "norm" in name else 0.0
            weight.copy_((torch.randn_like(weight) * spread / weight.shape[-1] ** 0.25 + middle).bfloat16().float())
    model.eval().save_pretrained(folder)
    return model


class Engine:
    """Logits of transformers, or of Napier; the last few thousand are kept."""

    def __init__(self, forward):
        self._forward, self._kept = forward, {}

    def __call__(self, prompt, ids):
        key = (tuple(prompt), tuple(ids))
        if key not in self._kept:
            if len(self._kept) > 2000:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = self._forward([*prompt, *ids])
        return self._kept[key]


def transformers_engine(model, dtype):
    model = model.to(torch.bfloat16 if dtype == "bf16" else torch.float32)

    def forward(ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0].float().numpy()

    return Engine(forward)


class Drawn:
    """Prompts and responses of a model, drawn once for all faults that ask for the same."""

    def __init__(self, referee, size):
        self._referee, self._size, self._kept = referee, size, {}

    def __call__(self, fault, seed):
        options = {k: v for k, v in fault.parameters.items() if k != "logit_bias"}
        key = repr((options, fault.beginning, fault.lengths, seed))
        if key not in self._kept:
            rng = np.random.default_rng(seed)
            prompts = [[*fault.beginning, *rng.integers(5, 300, rng.integers(*fault.lengths)).tolist()] for _ in range(self._size[0])]
            made = self._referee.generate(prompts, max_tokens=self._size[1], stop=[], seed=seed, **options)
            self._kept[key] = [(p, made.token_ids[a:b].tolist()) for p, a, b in zip(prompts, made.offsets, made.offsets[1:])]
        return self._kept[key]


def remembered(check):
    """draws.check, which says the same of the same ids whatever the engine's numbers are, asked once."""
    kept = {}

    def ask(reference, responses):
        key = (id(reference.model), *(r.key for r in responses), repr([r.parameters for r in responses]))
        if key not in kept:
            kept[key] = check(reference, responses)
        return kept[key]

    return ask


def named(referee, engine, fault, pairs):
    """(whether the causes are the fault's and no others, the causes)."""
    report = napier.audit([audit_faults.line(fault, engine, p, ids) for p, ids in pairs], referee)
    found = [f.cause for f in report.findings["engine"] if f.fault] + (["draws"] if report.draws else [])
    if fault.causes and isinstance(fault.causes[0], tuple):
        allowed = {*fault.causes[0], *fault.causes[1], "fill"}
        return all(set(some) & set(found) for some in fault.causes) and set(found) <= allowed, found
    return fault.causes[0] in found and set(found) <= set(fault.causes) if fault.causes else not found, found


def least(referee, engine, fault, pairs):
    """The smallest place in LEAST at which the fault is named, by bisection; len(LEAST) for none."""
    low, high = 0, len(LEAST)
    while low < high:
        middle = (low + high) // 2
        count, tokens = LEAST[middle]
        if named(referee, engine, fault, [(p, ids[:tokens]) for p, ids in pairs[:count]])[0]:
            high = middle
        else:
            low = middle + 1
    return low


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="200x100")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--healthy", type=int, default=0, help="runs of healthy numbers of each engine")
    parser.add_argument("--healthy-size", default="20x50")
    parser.add_argument("--least", action="store_true", help="search the smallest number of tokens, too")
    parser.add_argument("--only", default="", help="faults with this word; none: only the healthy runs")
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    size, healthy = (tuple(map(int, s.split("x"))) for s in (options.size, options.healthy_size))
    faults = {**audit_faults.FAULTS, **{f"{a} + {b}": audit_faults.both(a, b) for a, b in audit_faults.PAIRS}}
    faults = {name: fault for name, fault in faults.items() if options.only in name}
    counts, smallest = {name: [0, 0] for name in faults}, {name: {} for name in faults}
    alarms, start = {}, time.monotonic()
    run.draws.check = remembered(run.draws.check)
    with tempfile.TemporaryDirectory() as place:
        for kind in options.kinds.split(","):
            family, changes, dtype = KINDS[kind]
            model = make(family, changes, f"{place}/{kind}")
            referee, engine = napier.CausalLM(f"{place}/{kind}"), transformers_engine(model, dtype)
            drawn = Drawn(referee, size)
            for seed, (name, fault) in itertools.product(range(10, 10 + options.seeds), faults.items()):
                if dtype == "bf16" and ("bf16" in name or "fp16" in name or "block" in name):
                    continue  # this engine's logits have that fault already, or hide it
                ok, found = named(referee, engine, fault, drawn(fault, seed))
                counts[name][0] += ok
                counts[name][1] += 1
                if options.least and seed == 10:
                    smallest[name][kind] = least(referee, engine, fault, drawn(fault, seed))
                print(f"    {kind} seed {seed} {name}: {'' if ok else 'MISSED '}{found}", file=sys.stderr, flush=True)
            engines = {kind: engine, **({"napier": Engine(referee.forward)} if kind == "qwen3" else {})}
            for (name, own), seed in itertools.product(engines.items(), range(1000, 1000 + options.healthy)):
                fault = audit_faults.Fault((), {"temperature": (1.0, 0.7)[seed % 2]}, audit_faults.plain)
                ok, found = named(referee, own, fault, Drawn(referee, healthy)(fault, seed))
                alarms[name] = alarms.get(name, 0) + (not ok)
                if not ok:
                    print(f"    healthy {name} seed {seed}: {found}", file=sys.stderr, flush=True)
    kinds, sizes = options.kinds.split(",") if options.least else [], [*map(math.prod, LEAST), "-"]
    print(f"{'':45} {'':9}", *(f"{kind:>10}" for kind in kinds))
    for name, (good, count) in counts.items():
        print(f"{name:45} {good:4}/{count:<4}", *(f"{sizes[smallest[name][k]] if k in smallest[name] else '':>10}" for k in kinds))
    for what, some in (("one fault", [n for n in counts if "+" not in n]), ("two faults", [n for n in counts if "+" in n])):
        print(f"{what:45} {sum(counts[n][0] for n in some):4}/{sum(counts[n][1] for n in some)}")
    for name, count in alarms.items():
        print(f"healthy, {name}: {count} alarms of {options.healthy} at {options.healthy_size}")
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
