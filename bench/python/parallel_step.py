"""The time of a step on several processes: python bench/python/parallel_step.py [PROCESSES [TOKENS [KIND...]]]

Two layers of Qwen3-0.6B's shape and 8 sequences, one step: forward, backward, the exchange of gradients, AdamW. One thread for each
process. Peers: DistributedDataParallel and FSDP without a tree, and PyTorch's ColwiseParallel and RowwiseParallel (Megatron's layout). All
compute with napier.hf except the last, which is transformers' own model, also in one process.
"""

import contextlib
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import napier.hf
from napier.torch.data_parallel import SequenceTree

BATCH, WORDS = 8, 4096
KINDS = ("DDP", "DDP tree", "FSDP", "FSDP tree", "divided", "transformers", "transformers divided")


def make_model():
    torch.manual_seed(0)
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=WORDS,
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=2,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
            tie_word_embeddings=True,
        )
    )


def divide_by_pytorch(model, mesh):
    plan = {
        name: ColwiseParallel() for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    }
    plan |= {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
    for layer in model.model.layers:
        parallelize_module(layer, mesh, plan)


def prepare(kind, ranks):
    """(what is called, its sequences for this rank, whether it waits with the exchange)."""
    model = make_model()
    if not kind.startswith("transformers"):
        napier.hf.patch(model, mesh=init_device_mesh("cpu", (ranks,)) if kind == "divided" else None)
    if kind == "transformers divided":
        divide_by_pytorch(model, init_device_mesh("cpu", (ranks,)))
    if kind.startswith("FSDP") and ranks > 1:
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
    called = DistributedDataParallel(model) if kind.startswith("DDP") and ranks > 1 else model
    if kind.endswith("tree"):
        called._napier_tree = SequenceTree(called, BATCH)
    return called, BATCH // ranks if kind.startswith(("DDP", "FSDP")) else BATCH


def step(called, sequences, optimizer):
    for i, ids in enumerate(sequences):
        waits = i < len(sequences) - 1 and isinstance(called, DistributedDataParallel)
        with called.no_sync() if waits else contextlib.nullcontext():
            (called(ids, use_cache=False).logits.logsumexp(-1).mean() / len(sequences)).backward()
    optimizer.step()
    optimizer.zero_grad()


def measure(kind, rank, ranks, tokens):
    called, count = prepare(kind, ranks)
    optimizer, times = torch.optim.AdamW(called.parameters(), lr=1e-5), []
    sequences = [torch.randint(0, WORDS, (1, tokens), generator=torch.Generator().manual_seed(i)) for i in range(count)]
    for _ in range(4):
        begin = time.perf_counter()
        step(called, sequences, optimizer)
        times.append(time.perf_counter() - begin)
    if rank == 0:
        print(f"{kind:22} {ranks} {statistics.median(times[1:]):7.3f} s", flush=True)


def run(kind, ranks, tokens):
    store, children = tempfile.mktemp(), []
    for rank in range(ranks):
        children.append(os.fork())
        if children[-1] == 0:
            torch.set_num_threads(1)
            if ranks > 1:
                dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
            measure(kind, rank, ranks, tokens)
            os._exit(0)
    if any(os.waitpid(child, 0)[1] for child in children):
        raise SystemExit(f"{kind} on {ranks} processes failed")


if __name__ == "__main__":
    ranks, tokens = map(int, (sys.argv[1:3] + ["2", "128"][len(sys.argv) - 1 :]))
    for kind in sys.argv[3:] or KINDS:
        for n in (ranks,) if "FSDP" in kind or "divided" in kind else (1,) if kind == "transformers" else (1, ranks):
            run(kind, n, tokens)
