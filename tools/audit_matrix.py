"""How often napier.audit names a planted fault, and how often it names one where there is none.

    python tools/audit_matrix.py [--sizes 5x20,20x50,200x100] [--seeds 1] [--healthy 60] [--only WORD]

Tiny random models of transformers (Qwen3, Llama, Qwen3 with experts) in float32, and Qwen3 in bfloat16, report the numbers; Napier is
the referee. Needs PyTorch, transformers and napier. tests/support/audit_faults.py has the faults. A run prints one row a fault: how
often it was named, with nothing else, of how many."""

import argparse
import pathlib
import sys
import tempfile
import time

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import napier

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "support"))
import audit_faults

CONFIG = dict(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=32, intermediate_size=96)
CONFIG |= dict(vocab_size=307, max_position_embeddings=4096, bos_token_id=audit_faults.BOS, eos_token_id=2, tie_word_embeddings=True)
EXPERTS = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=48, decoder_sparse_step=1, norm_topk_prob=True)
KINDS = {
    "qwen3": ("qwen3", {}, "f32"),
    "llama": ("llama", {}, "f32"),
    "moe": ("qwen3_moe", EXPERTS, "f32"),
    "qwen3 bf16": ("qwen3", {}, "bf16"),
}


def make(family, changes, folder, seed=1, spread=0.3):
    """Random weights that bfloat16 holds, so that an engine in bfloat16 has the same ones."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **CONFIG, **changes), attn_implementation="eager")
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
            if len(self._kept) > 1000:
                self._kept.clear()
            self._kept[key] = self._forward([*prompt, *ids])
        return self._kept[key]


def transformers_engine(model, dtype):
    model = model.to(torch.bfloat16 if dtype == "bf16" else torch.float32)

    def forward(ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0].float().numpy()

    return Engine(forward)


def responses(referee, fault, count, tokens, seed):
    rng = np.random.default_rng(seed)
    prompts = [[*fault.beginning, *rng.integers(5, 300, rng.integers(*fault.lengths)).tolist()] for _ in range(count)]
    options = {k: v for k, v in fault.parameters.items() if k != "logit_bias"}
    made = referee.generate(prompts, max_tokens=tokens, stop=[], seed=seed, **options)
    return [(p, made.token_ids[made.offsets[i] : made.offsets[i + 1]].tolist()) for i, p in enumerate(prompts)]


def named(referee, engine, fault, size, seed):
    """(whether the causes are the fault's and no others, the causes)."""
    rows = [audit_faults.line(fault, engine, p, ids) for p, ids in responses(referee, fault, *size, seed)]
    report = napier.audit(rows, referee)
    found = [f.cause for f in report.findings["engine"] if f.fault] + (["draws"] if report.draws else [])
    if fault.causes and isinstance(fault.causes[0], tuple):
        allowed = {*fault.causes[0], *fault.causes[1], "fill"}
        return all(set(some) & set(found) for some in fault.causes) and set(found) <= allowed, found
    return fault.causes[0] in found and set(found) <= set(fault.causes) if fault.causes else not found, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="5x20,20x50,200x100")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--healthy", type=int, default=0, help="runs of healthy numbers of each engine")
    parser.add_argument("--healthy-size", default="20x50")
    parser.add_argument("--only", default="", help="faults with this word; none: only the healthy runs")
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    sizes = [tuple(map(int, s.split("x"))) for s in options.sizes.split(",")]
    faults = {**audit_faults.FAULTS, **{f"{a} + {b}": audit_faults.both(a, b) for a, b in audit_faults.PAIRS}}
    kinds, start = {}, time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        for name in options.kinds.split(","):
            family, changes, dtype = KINDS[name]
            model = make(family, changes, f"{place}/{name}")
            kinds[name] = napier.CausalLM(f"{place}/{name}"), transformers_engine(model, dtype)
        totals = np.zeros((2, len(sizes), 2), int)
        for name, fault in faults.items():
            if options.only not in name:
                continue
            cells = []
            for k, size in enumerate(sizes):
                good = count = 0
                for kind, (referee, engine) in kinds.items():
                    if "bf16" in name and "bf16" in kind:
                        continue  # this engine's logits have that fault already
                    for seed in range(options.seeds):
                        ok, found = named(referee, engine, fault, size, 10 + seed)
                        good, count = good + ok, count + 1
                        if not ok:
                            print(f"    {kind} {size[0]}x{size[1]} seed {10 + seed} {name}: {found}", file=sys.stderr, flush=True)
                cells.append(f"{good:4}/{count:<4}")
                totals[int("+" in name)][k] += (good, count)
            print(f"{name:45}", *cells, flush=True)
        for what, table in zip(("one fault", "pairs"), totals):
            print(f"{what:45}", *(f"{a:4}/{b:<4}" for a, b in table))
        size = tuple(map(int, options.healthy_size.split("x")))
        if options.healthy:
            kinds["napier"] = next(iter(kinds.values()))[0], None
        for kind, (referee, engine) in kinds.items():
            own = Engine(referee.forward) if engine is None else engine
            alarms = 0
            for seed in range(options.healthy):
                fault = audit_faults.Fault((), {"temperature": (1.0, 0.7)[seed % 2]}, audit_faults.plain)
                ok, found = named(referee, own, fault, size, 1000 + seed)
                alarms += not ok
                if not ok:
                    print(f"    healthy {kind} seed {1000 + seed}: {found}", file=sys.stderr, flush=True)
            if options.healthy:
                print(f"healthy, {kind}: {alarms} alarms of {options.healthy} at {size[0]}x{size[1]}", flush=True)
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
