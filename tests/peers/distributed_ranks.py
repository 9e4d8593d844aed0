"""What test_torch_distributed.py runs: processes of a gloo group, forked from one that has imported PyTorch once.

    distributed_ranks.py golden     every function, count of ranks and list of boundaries, against one process; the golden table
    distributed_ranks.py dtensor    DTensors
    distributed_ranks.py kill       a rank is killed; what the others say, and after how many seconds
    distributed_ranks.py refusals

The numbers and the table are those of tests/mpi/ranks.c."""
import json
import os
import signal
import sys
import tempfile
import time
import zlib

import numpy as np
import torch
import torch.distributed as dist

import napier
import napier.torch as nt
import napier.torch.distributed as nd

ROWS, COLS, HIDDEN = 5, 5003, 24
COUNTS = (1, 2, 3, 4, 8)
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
TOKENS = dict(softcap=30.0, label_smoothing=0.125, z_loss=0.0009765625, lse=True, entropy=True, loss=True)


def say(what):
    """A line in one piece, whatever other ranks write."""
    os.write(1, (json.dumps(what) + "\n").encode())


def numbers(seed, *shape, dtype):
    i = np.arange(int(np.prod(shape)), dtype=np.uint32)
    with np.errstate(over="ignore"):
        mixed = (i + np.uint32(1)) * np.uint32(2654435761) ^ np.uint32((seed + 1) * 2246822519 % 2**32)
        mixed = mixed * np.uint32(3266489917) >> np.uint32(20)
    return torch.from_numpy((mixed.astype(np.float32) / 256 - 8).reshape(shape)).to(dtype)


def boundaries(which, ranks):
    anywhere = [0, 1, 1500, 1501, 2048, 2048, 3333, 5002]
    begins = {0: [COLS * r // ranks for r in range(ranks)], 1: [min(r * 1024, COLS) for r in range(ranks)], 2: [0] * ranks,
              3: list(range(ranks)), 4: [anywhere[r] if r < 8 else 5002 for r in range(ranks)]}[which]
    return begins + [COLS]


def run(ranks, function, *arguments):
    """Forks the ranks; returns their exit statuses."""
    store = tempfile.mktemp()
    processes = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                torch.set_num_threads(1)
                dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
                function(rank, ranks, *arguments)
                dist.destroy_process_group()
                status = 0
            except BaseException as error:
                say({"rank": rank, "error": f"{type(error).__name__}: {error}", "at": time.time()})
            finally:
                os._exit(status)
        processes.append(pid)
    return processes


def ended(processes):
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in processes]


# ---- golden ------------------------------------------------------------------------------------------------------------------


def results(module, dtype, part=slice(None), **options):
    """Every result and gradient, by name, of the whole or of a rank's part."""
    x, g = numbers(1, ROWS, COLS, dtype=dtype), numbers(2, ROWS, COLS, dtype=dtype)
    hidden, weights = numbers(3, ROWS, HIDDEN, dtype=dtype), numbers(4, COLS, HIDDEN, dtype=dtype)
    by_row, ids = numbers(5, ROWS, dtype=dtype), torch.tensor([0, 1500, -100, COLS - 1, 2047])
    made = {}

    def mine(t):
        return t[:, part].clone().requires_grad_()

    for name in ("softmax", "log_softmax"):
        a = mine(x)
        y = getattr(module, name)(a, temperature=0.75, **options)
        y.backward(g[:, part])
        made[name], made[name + "_backward"] = y, a.grad
    a = mine(x)
    y = module.logsumexp(a, temperature=0.75, **(options or {"dim": -1}))
    y.backward(by_row)
    made["logsumexp"], made["logsumexp_backward"] = y, a.grad
    for prefix in ("", "linear_"):
        a = mine(x) if not prefix else hidden.clone().requires_grad_()
        inputs = (a,) if not prefix else (a, weights[part].clone().requires_grad_())
        t = getattr(module, prefix + "token_logprobs")(*inputs, ids, **TOKENS, **options)
        sum((getattr(t, field) * by_row.float()).sum() for field in ("logprobs", "lse", "entropy", "loss")).backward()
        for field in ("logprobs", "lse", "entropy", "loss"):
            made[f"{prefix}token_{field}"] = getattr(t, field)
        if prefix:
            made["linear_grad_hidden"], made["linear_grad_weights"] = a.grad, inputs[1].grad
        else:
            made["token_logprobs_backward"] = a.grad
    more = options or {"dim": -1}
    made["weighted_without_sign"] = module.logsumexp(x[:, part], b=g[:, part], temperature=0.75, **more)
    a, b = mine(x), mine(g)
    made["weighted_lse"], made["weighted_sign"] = module.logsumexp(a, b=b, return_sign=True, temperature=0.75, **more)
    made["weighted_lse"].backward(by_row)
    made["backward_of_weights"], made["backward_of_weighted"] = b.grad, a.grad  # MPI has none, so they are not in the table
    return {name: y.detach().contiguous() for name, y in made.items()}


def part_of(name, y, part):
    if name == "linear_grad_weights":
        return y[part]
    return y[:, part] if y.ndim == 2 and y.shape[1] == COLS else y


def bits(y):
    return y.contiguous().view(torch.uint8)


def compare(rank, ranks, wholes):
    differences = checked = 0
    for which in range(5):
        begins = boundaries(which, ranks)
        part, sizes = slice(begins[rank], begins[rank + 1]), [e - b for b, e in zip(begins, begins[1:])]
        for name, dtype in DTYPES.items():
            for options in ({"group": None}, {"sizes": sizes}):
                for what, y in results(nd, dtype, part, **options).items():
                    expected = part_of(what, wholes[name][what], part)
                    same = y.dtype == expected.dtype and y.shape == expected.shape and torch.equal(bits(y), bits(expected))
                    checked += 1
                    differences += not same
                    if not same:
                        say({"rank": rank, "error": f"{ranks} ranks, {begins}: {what} {name} differs"})
    total = torch.tensor([checked, differences])
    dist.all_reduce(total)
    if rank == 0:
        say({"ranks": ranks, "checked": total[0].item(), "differences": total[1].item()})


def golden():
    wholes = {name: results(nt, dtype) for name, dtype in DTYPES.items()}
    for name, whole in wholes.items():
        for what, y in whole.items():
            if what in ("softmax_backward", "log_softmax_backward"):  # napier.torch's have not seen a result of 16 bits, which C's read
                function = getattr(napier, what)
                y = function(whole[what.removesuffix("_backward")], numbers(2, ROWS, COLS, dtype=DTYPES[name]), temperature=0.75)
            if not what.startswith("backward_"):
                print(f"{what} {name} {zlib.crc32(bits(y).numpy().tobytes()):08x}", flush=True)
    for ranks in COUNTS:
        ended(run(ranks, compare, wholes))


# ---- dtensor -----------------------------------------------------------------------------------------------------------------


def on_mesh(rank, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (ranks,))
    x, ids = numbers(1, ROWS, COLS, dtype=torch.float32), torch.tensor([0, 1500, -100, COLS - 1, 2047])
    whole, cut = x.clone().requires_grad_(), distribute_tensor(x, mesh, [Shard(-1)]).requires_grad_()
    for name in ("softmax", "log_softmax"):
        y, z = getattr(nt, name)(whole), getattr(nd, name)(cut)
        assert isinstance(z, DTensor) and z.placements[0].is_shard(1) and torch.equal(bits(z.full_tensor()), bits(y)), name
    y, z = nt.logsumexp(whole, -1), nd.logsumexp(cut)
    assert z.placements == (Replicate(),) and torch.equal(bits(z.to_local()), bits(y))
    g = numbers(2, ROWS, COLS, dtype=torch.float32)
    y, z = nt.logsumexp(whole, -1, b=g, return_sign=True), nd.logsumexp(cut, b=distribute_tensor(g, mesh, [Shard(-1)]), return_sign=True)
    assert all(m.placements == (Replicate(),) and torch.equal(bits(m.to_local()), bits(n)) for m, n in zip(z, y))
    y, z = nt.token_logprobs(whole, ids, entropy=True), nd.token_logprobs(cut, ids, entropy=True)
    assert torch.equal(bits(z.logprobs.to_local()), bits(y.logprobs)) and torch.equal(bits(z.entropy.to_local()), bits(y.entropy))
    (y.logprobs + y.entropy).sum().backward()
    (z.logprobs + z.entropy).sum().backward()
    assert torch.equal(bits(cut.grad.full_tensor()), bits(whole.grad))
    # two dimensions of a mesh: rows over one, columns over the other
    if ranks == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        x = x[:4]
        cut = distribute_tensor(x, mesh, [Shard(0), Shard(1)])
        z = nd.logsumexp(cut)
        assert torch.equal(bits(z.full_tensor()), bits(nt.logsumexp(x, -1)))
        assert torch.equal(bits(nd.log_softmax(cut).full_tensor()), bits(nt.log_softmax(x)))
    try:
        nd.softmax(distribute_tensor(x, mesh, [Replicate()] * mesh.ndim))
    except ValueError as error:
        assert "Shard(-1)" in str(error)
    else:
        raise AssertionError("a replicated DTensor was taken")
    loss = nd.cross_entropy(numbers(1, ROWS, COLS, dtype=torch.float32)[:, rank * COLS // ranks:(rank + 1) * COLS // ranks], ids)
    expected = nt.token_logprobs(numbers(1, ROWS, COLS, dtype=torch.float32), ids, loss=True).loss.double().sum() / 4
    assert abs(loss.item() - expected.item()) < 1e-6 * abs(expected.item())
    say({"dtensor": ranks})


# ---- kill --------------------------------------------------------------------------------------------------------------------


def loop(rank, ranks):
    x = numbers(1, ROWS, COLS, dtype=torch.float32)[:, :1000].requires_grad_()
    while True:
        nd.log_softmax(x).sum().backward()


def kill():
    processes = run(3, loop)
    time.sleep(2)
    say({"killed": time.time()})
    os.kill(processes[2], signal.SIGKILL)
    say({"statuses": ended(processes)})


# ---- refusals ----------------------------------------------------------------------------------------------------------------


def refuse(rank, ranks):
    x = torch.zeros(4, 10)
    cases = [(ValueError, "rows: rank 1 has 3, rank 0 has 4", lambda: nd.softmax(x[rank:])),
             (ValueError, "options: rank 1 has", lambda: nd.softmax(x, temperature=1.0 + rank)),
             (ValueError, "dtype: rank 1 has", lambda: nd.logsumexp(x.half() if rank else x)),
             (TypeError, "use .float()", lambda: nd.softmax(x.double())),
             (ValueError, "sizes: expected the columns of each of 2 ranks", lambda: nd.softmax(x, sizes=[10])),
             (ValueError, "has 10 columns, not 3", lambda: nd.softmax(x, sizes=[3, 3])),
             (ValueError, "ids[0] is 20", lambda: nd.token_logprobs(x, torch.full((4,), 20))),
             (TypeError, "expected integers", lambda: nd.token_logprobs(x, torch.zeros(4))),
             (ValueError, "leading dimensions", lambda: nd.token_logprobs(x, torch.zeros(3, dtype=torch.int64))),
             (ValueError, "reduction: 'max'", lambda: nd.cross_entropy(x, torch.zeros(4, dtype=torch.int64), reduction="max")),
             (ValueError, "is not [V, 10]", lambda: nd.linear_token_logprobs(x, torch.zeros(5, 7)))]
    for kind, text, call in cases:
        try:
            call()
        except kind as error:
            assert text in str(error), f"{error} does not say {text}"
        else:
            raise AssertionError(f"no {kind.__name__} about {text}")
    say({"refusals": len(cases)})


if __name__ == "__main__":
    mode = sys.argv[1]
    if mode == "golden":
        golden()
    elif mode == "kill":
        kill()
    elif mode == "dtensor":
        for n in (2, 4):
            ended(run(n, on_mesh))
    else:
        ended(run(2, refuse))
