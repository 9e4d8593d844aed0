"""What test_torch_data_parallel.py runs: training on processes of a gloo group, forked from one that has imported PyTorch once.
data_parallel_ranks.py [PART...], default all:

    loop      a plain loop on 1, 2 and 4 processes, without and with FSDP: the weights after 3 steps
    trainer   GRPOTrainer on 1, 2 and 4 processes
    kill      a process is killed; what the others say, when, and the weights of a run that goes on without it
    refusals
"""
import contextlib
import functools
import hashlib
import os
import signal
import sys
import tempfile
import time
import warnings

import datasets
import torch
import transformers
import trl
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

import napier.hf
import napier.torch as nt
import napier.trl
from distributed_ranks import ended, run, say
from napier.torch.data_parallel import SequenceTree, attach, clip_grad_norm_
from test_torch_trl import Letters, reward

BATCH, WORDS = 8, 40
MODES = {"f32": torch.float32, "bf16": torch.bfloat16}


def model_of(family, mode):
    torch.manual_seed(1)
    config = getattr(transformers, family + "Config")(
        vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, max_position_embeddings=64, eos_token_id=3, bos_token_id=None)
    return napier.hf.patch(getattr(transformers, family + "ForCausalLM")(config).to(MODES[mode]), mode)


def bytes_of(model):
    parts = [p.detach().contiguous().view(torch.uint8).numpy().tobytes() for p in model.parameters()]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def sequences(step):
    g = torch.Generator().manual_seed(step)
    return [torch.randint(0, WORDS, (1, int(n)), generator=g) for n in torch.randint(3, 20, (BATCH,), generator=g)]


def step_of(ddp, tree, optimizer, rank, ranks, step):
    each = BATCH // ranks
    for i, ids in enumerate(sequences(step)[rank * each:(rank + 1) * each]):
        with ddp.no_sync() if ranks > 1 and i < each - 1 else contextlib.nullcontext():
            logprobs = nt.token_logprobs(ddp(ids, use_cache=False).logits[0, :-1], ids[0, 1:]).logprobs
            (-logprobs.mean() / each).backward()
    norm = tree.clip_grad_norm_(0.5).item()
    optimizer.step()
    optimizer.zero_grad()
    return norm


def loop(rank, ranks, family, mode, steps=3, checkpoint=None, **options):
    model = model_of(family, mode)
    optimizer, first = torch.optim.AdamW(model.parameters(), lr=1e-2), 0
    if checkpoint and os.path.exists(checkpoint):
        first, weights, state = torch.load(checkpoint)
        model.load_state_dict(weights)
        optimizer.load_state_dict(state)
    ddp = DistributedDataParallel(model, **options) if ranks > 1 else model
    tree, norms = SequenceTree(ddp, BATCH), []
    for step in range(first, steps):
        norms.append(step_of(ddp, tree, optimizer, rank, ranks, step))
        if checkpoint and rank == 0:
            torch.save((step + 1, model.state_dict(), optimizer.state_dict()), checkpoint + ".new")
            os.replace(checkpoint + ".new", checkpoint)
            say({"step": step})
    say({"ranks": ranks, "family": family, "mode": mode, "weights": bytes_of(model), "norms": norms})


def loops():
    for family, mode in (("Qwen3", "f32"), ("Llama", "f32"), ("Qwen3", "bf16"), ("Llama", "bf16")):
        for ranks in (1, 2, 4) if family == "Qwen3" else (1, 4):
            assert ended(run(ranks, loop, family, mode)) == [0] * ranks
        for ranks in (2, 4) if mode == "f32" else (2,):
            assert ended(run(ranks, shards, family, mode)) == [0] * ranks
    assert ended(run(2, functools.partial(loop, bucket_cap_mb=0.005, gradient_as_bucket_view=True), "Qwen3", "f32")) == [0, 0]


def shards(rank, ranks, family, mode, steps=3):
    """The same loop on FSDP2, whose rank has every Nth sequence."""
    model, mesh = model_of(family, mode), init_device_mesh("cpu", (ranks,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer, tree, norms = torch.optim.AdamW(model.parameters(), lr=1e-2), SequenceTree(model, BATCH), []
    for step in range(steps):
        for ids in sequences(step)[rank::ranks]:
            logprobs = nt.token_logprobs(model(ids, use_cache=False).logits[0, :-1], ids[0, 1:]).logprobs
            (-logprobs.mean() / (BATCH // ranks)).backward()
        norms.append(tree.clip_grad_norm_(0.5).item())
        optimizer.step()
        optimizer.zero_grad()
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.unshard()
    say({"ranks": ranks, "family": family, "mode": mode, "weights": bytes_of(model), "norms": norms})


# ---- GRPOTrainer ---------------------------------------------------------------------------------------------------------------


def train(rank, ranks, family, mode, folder):
    args = trl.GRPOConfig(
        folder, max_steps=2, per_device_train_batch_size=1, gradient_accumulation_steps=BATCH // ranks, num_generations=4, bf16=False,
        max_completion_length=8, use_cpu=True, report_to="none", disable_tqdm=True, learning_rate=1e-2, logging_steps=1,
        save_strategy="no")
    data = datasets.Dataset.from_dict({"prompt": ["ab", "q", "xyz", "cd1", "09", "foo"]})
    options = dict(args=args, train_dataset=data, processing_class=Letters())
    model = model_of(family, mode)
    if family == "Llama":
        trainer = trl.GRPOTrainer(model, reward, rollout_func=napier.trl.Rollout(), **options)
    else:
        trainer = napier.trl.GRPOTrainer(model, reward, **options)
    attach(trainer).train()
    metric = "sampling/sampling_logp_difference/max"
    apart = [log[metric] for log in trainer.state.log_history if metric in log]
    say({"ranks": ranks, "family": family, "mode": mode, "weights": bytes_of(model), "apart": apart})


def trainers():
    with tempfile.TemporaryDirectory() as folder:
        for family, mode in (("Qwen3", "f32"), ("Llama", "bf16")):
            for ranks in (1, 2, 4) if family == "Qwen3" else (1, 2):
                assert ended(run(ranks, launched, family, mode, folder)) == [0] * ranks


def launched(rank, ranks, *arguments):
    """Accelerate asks the environment how many processes there are."""
    if ranks > 1:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks),
                          MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    warnings.filterwarnings("ignore")
    with open(os.devnull, "w") as nowhere:
        out, sys.stdout = sys.stdout, nowhere
        train(rank, ranks, *arguments)
        sys.stdout = out


# ---- A process that is killed ----------------------------------------------------------------------------------------------------


def endless(rank, ranks, checkpoint):
    loop(rank, ranks, "Qwen3", "f32", 100000, checkpoint)


def kill():
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = os.path.join(folder, "checkpoint")
        processes = run(4, endless, checkpoint)
        while not os.path.exists(checkpoint):
            time.sleep(0.05)
        say({"killed": time.time()})
        os.kill(processes[2], signal.SIGKILL)
        say({"statuses": ended(processes)})
        steps = torch.load(checkpoint)[0] + 2
        assert ended(run(2, loop, "Qwen3", "f32", steps, checkpoint)) == [0, 0]
        assert ended(run(1, loop, "Qwen3", "f32", steps)) == [0]


# ---- Refusals --------------------------------------------------------------------------------------------------------------------


def refused(text, call, kind=ValueError):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{error} does not say {text}"
    else:
        raise AssertionError(f"no {kind.__name__} about {text}")


def refuse(rank, ranks):
    ddp = DistributedDataParallel(torch.nn.Linear(2, 1))
    if ranks == 3:
        refused("3 ranks", lambda: SequenceTree(ddp, 3))
    else:
        refused("batch: 6 sequences on 2 processes", lambda: SequenceTree(ddp, 6))
        refused("batch: 7 sequences on 2 processes", lambda: SequenceTree(ddp, 7))
        refused("batch differ between ranks: [8, 16]", lambda: SequenceTree(ddp, 8 << rank))
        refused("expected DistributedDataParallel or fully_shard on 2 processes, got Linear", lambda: SequenceTree(torch.nn.Linear(2, 1), 8))
        tree = SequenceTree(ddp, 4)
        refused("weight has gradients of 1 sequences in place of 2", lambda: ddp(torch.ones(2)).sum().backward(), RuntimeError)
        tree.remove()
    say({"refused": ranks})


def refusals():
    for ranks in (2, 3):
        assert ended(run(ranks, refuse)) == [0] * ranks
    model, x = torch.nn.Linear(2, 1), torch.ones(2)
    optimizer, tree = torch.optim.SGD(model.parameters(), 0.5), SequenceTree(model, 3)
    model(x).sum().backward()
    refused("weight has gradients of 1 sequences in place of 3", optimizer.step, RuntimeError)
    refused("in place of 3", lambda: tree.clip_grad_norm_(1.0), RuntimeError)
    for _ in range(2):
        model(x).sum().backward()
    optimizer.step()  # 3 leaves: (0 + 1) + 2
    refused("call optimizer.zero_grad()", lambda: model(x).sum().backward(), RuntimeError)
    tree.remove()
    optimizer.zero_grad()
    for _ in range(2):
        model(x).sum().backward()
    optimizer.step()
    assert model.weight.grad.tolist() == [[2, 2]]
    sparse = torch.nn.Embedding(4, 2, sparse=True)
    SequenceTree(sparse, 2)
    refused("only dense ones", lambda: sparse(torch.tensor([1])).sum().backward(), NotImplementedError)
    refused("batch: 0", lambda: SequenceTree(model, 0))


def norms():
    w, gradient = torch.zeros(600_001, requires_grad=True), torch.randn(600_001, generator=torch.Generator().manual_seed(1))
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        w.grad = gradient.clone()
        found.append((clip_grad_norm_([w, torch.zeros(2)], 1.0).item(), w.grad))
    exact = gradient.double().square().sum().sqrt().item()
    assert abs(found[0][0] / exact - 1) < 1e-7
    assert all(norm == found[0][0] and torch.equal(g, found[0][1]) for norm, g in found)
    w.grad = torch.full_like(w, torch.nan)
    assert clip_grad_norm_(w, 1.0).isnan()
    torch.set_num_threads(1)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    parts = {"loop": loops, "kill": kill, "refusals": refusals, "norms": norms, "trainer": trainers}
    for part in sys.argv[1:] or parts:
        say({"part": part})
        parts[part]()
