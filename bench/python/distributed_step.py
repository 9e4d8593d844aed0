"""A vocabulary sharded over processes: Napier's bits, messages, bytes and time of a step beside those of PyTorch's loss_parallel and of
Megatron's way, three all-reduces.

    python bench/python/distributed_step.py [--rows 64] [--vocabulary 151936] [--dtype float32] [--rounds 7] [--counts 2,4] [--bits 1,2,3,4,8]

in an environment with napier and torch. All processes are on this machine (gloo, one thread each). A step is the loss of each row and the
gradient of the logits. Each method runs in turn; a time is that of the slowest process, from a barrier to the end. The bytes are what a
rank sends, counted where it calls torch.distributed: an all-reduce of b bytes counts as b.
"""

import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

import napier.torch.distributed as nd

SENT = {"messages": 0, "bytes": 0}


def counted(function, tensor_of):
    def call(*arguments, **options):
        SENT["messages"] += 1
        SENT["bytes"] += tensor_of(*arguments).nbytes
        return function(*arguments, **options)

    return call


class ThreeReductions(torch.autograd.Function):
    """Megatron's way: the maximum, the sum of exponentials and the target's logit are three all-reduces."""

    @staticmethod
    def forward(ctx, x, ids, first):
        most = x.float().amax(1)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        shifted = x.float() - most[:, None]
        here = (ids >= first) & (ids < first + x.shape[1])
        target = torch.where(here, shifted.gather(1, (ids - first).clamp(0, x.shape[1] - 1)[:, None])[:, 0], 0.0)
        dist.all_reduce(target)
        terms = shifted.exp()
        total = terms.sum(1)
        dist.all_reduce(total)
        ctx.save_for_backward(terms / total[:, None], here, ids - first)
        ctx.dtype = x.dtype
        return total.log() - target

    @staticmethod
    def backward(ctx, grad):
        probs, here, at = ctx.saved_tensors
        rows = torch.arange(probs.shape[0])[here]
        probs[rows, at[here]] -= 1.0
        return (probs * grad[:, None]).to(ctx.dtype), None, None


def methods(rank, ranks, x, ids):
    """name: step, which returns (loss [N], gradient of this rank's columns)."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.parallel import loss_parallel

    vocabulary = x.shape[1]
    each = -(-vocabulary // ranks)
    sizes = [max(0, min(each, vocabulary - r * each)) for r in range(ranks)]
    first = sum(sizes[:rank])
    mine = x[:, first : first + sizes[rank]].contiguous()
    mesh = init_device_mesh("cpu", (ranks,))

    def napier():
        a = mine.detach().requires_grad_()
        loss = nd.token_logprobs(a, ids, sizes=sizes, loss=True).loss
        loss.sum().backward()
        return loss.detach(), a.grad

    def napier_entropy():
        a = mine.detach().requires_grad_()
        t = nd.token_logprobs(a, ids, sizes=sizes, loss=True, entropy=True)
        (t.loss + t.entropy).sum().backward()
        return t.loss.detach(), a.grad

    def three():
        a = mine.detach().requires_grad_()
        loss = ThreeReductions.apply(a, ids, first)
        loss.sum().backward()
        return loss.detach(), a.grad

    def parallel():
        a = mine.detach().requires_grad_()
        d = DTensor.from_local(a, mesh, [Shard(1)], run_check=False, shape=x.shape, stride=x.stride())
        with loss_parallel():
            loss = F.cross_entropy(d, ids, reduction="none")
            loss.sum().backward()
        loss = loss.full_tensor() if isinstance(loss, DTensor) else loss
        return loss.detach(), a.grad

    return {"Napier": napier, "Napier, with entropy": napier_entropy, "loss_parallel": parallel, "three all-reduces": three}


def whole(grad, x, ranks):
    """The gradient of all columns, on every rank."""
    each = -(-x.shape[1] // ranks)
    sent = torch.zeros(x.shape[0], each, dtype=grad.dtype)
    sent[:, : grad.shape[1]] = grad
    all_ = [torch.empty_like(sent) for _ in range(ranks)]
    dist.all_gather(all_, sent)
    return torch.cat(all_, 1)[:, : x.shape[1]].contiguous()


def bits(rank, ranks, x, ids, out):
    for name, step in methods(rank, ranks, x, ids).items():
        loss, grad = step()
        grad = whole(grad, x, ranks)
        if rank == 0:
            torch.save((loss, grad), os.path.join(out, f"{ranks}-{name}.pt"))


def times(rank, ranks, x, ids, rounds):
    ways = methods(rank, ranks, x, ids)
    taken, sent = {name: [] for name in ways}, {}
    for turn in range(rounds + 1):
        for name, step in ways.items():
            dist.barrier()
            SENT.update(messages=0, bytes=0)
            begin = time.perf_counter()
            step()
            took = torch.tensor([time.perf_counter() - begin])
            sent[name] = dict(SENT)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            if turn:  # the first is a rehearsal
                taken[name].append(took.item())
    most = torch.tensor([[s["messages"], s["bytes"]] for s in sent.values()])
    dist.all_reduce(most, dist.ReduceOp.MAX)
    if rank == 0:
        for (name, all_), (messages, nbytes) in zip(taken.items(), most.tolist()):
            print(
                f"| {ranks} | {name} | {messages} | {nbytes / x.shape[0]:.0f} | {min(all_) * 1e3:.1f} | "
                f"{statistics.median(all_) * 1e3:.1f} |",
                flush=True,
            )


def run(ranks, function, *arguments):
    store = tempfile.mktemp()
    for rank in range(ranks):
        if os.fork() == 0:
            torch.set_num_threads(1)
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
            # loss_parallel reduces by the functional collectives, whose kernels take the tensor first
            import torch.distributed._functional_collectives as functional

            functional.all_reduce = counted(functional.all_reduce, lambda x, *_, **__: x)
            dist.all_reduce = counted(dist.all_reduce, lambda x, *_, **__: x)
            dist.all_gather_into_tensor = counted(dist.all_gather_into_tensor, lambda out, x, *_, **__: x)
            real = dist.batch_isend_irecv

            def batch(moves):
                for move in moves:
                    if move.op is dist.isend:
                        SENT["messages"] += 1
                        SENT["bytes"] += move.tensor.nbytes
                return real(moves)

            dist.batch_isend_irecv = batch
            function(rank, ranks, *arguments)
            dist.barrier()
            os._exit(0)
    for _ in range(ranks):
        os.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=151936)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--counts", default="2,4")
    parser.add_argument("--bits", default="1,2,3,4,8")
    o = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = (torch.randn(o.rows, o.vocabulary) * 3).to(getattr(torch, o.dtype))
    ids = torch.randint(0, o.vocabulary, (o.rows,))
    print(f"{o.rows} rows of {o.vocabulary} logits, {o.dtype}\n\n| processes | | messages | bytes a row | fastest ms | median ms |")
    print("|---:|---|---:|---:|---:|---:|", flush=True)
    for ranks in map(int, filter(None, o.counts.split(","))):
        run(ranks, times, x, ids, o.rounds)
    counts = [int(n) for n in o.bits.split(",") if n]
    if not counts:
        return
    with tempfile.TemporaryDirectory() as out:
        for ranks in counts:
            run(ranks, bits, x, ids, out)
        print("\nRows whose loss, and elements whose gradient, differ from those of one process:\n")
        print("| | " + " | ".join(f"{n} processes" for n in counts) + " |\n|---|" + "---:|" * len(counts))
        for name in ("Napier", "Napier, with entropy", "loss_parallel", "three all-reduces"):
            found = [torch.load(os.path.join(out, f"{n}-{name}.pt")) for n in counts]
            cells = []
            for loss, grad in found:
                view = torch.int32 if grad.dtype == torch.float32 else torch.int16
                cells.append(
                    f"{int((loss.view(torch.int32) != found[0][0].view(torch.int32)).sum())}, "
                    f"{int((grad.view(view) != found[0][1].view(view)).sum())}"
                )
            print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
