"""PyTorch and TRL in the RL benchmark: one process, driven by the lines that napier_worker.c describes.

An operation gives ways to compute it ("variants"), each the fastest form we know of what its name says; a way returns its
results by name. What any user would keep from step to step (padded arrays, masks, weights of tokens) is made in prepare
and not timed. Responses are padded to the longest, as TRL holds them (`padded`), or lie one after another (`flat`)."""
import ctypes
import gc
import mmap
import sys
import time
import traceback

import numpy as np
import torch

THREADS = int(sys.argv[1])
torch.set_num_threads(THREADS)
HUGE_PAGE = 2 << 20
BETA, EPSILON = 0.04, 0.2
LIBC = ctypes.CDLL(None)
CHUNK = 256  # rows of logits at a time in the chunked forms


def own_memory(what):
    with open("/proc/self/status", encoding="ascii") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(what))


def private_copy(path):
    """The bytes of a file in private memory, in huge pages where the system allows."""
    source = np.memmap(path, np.uint8, "r")
    room = (source.size // HUGE_PAGE + 1) * HUGE_PAGE
    mapped = mmap.mmap(-1, room + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapped.madvise(mmap.MADV_HUGEPAGE)
    everything = np.frombuffer(mapped, np.uint8)
    start = -everything.ctypes.data % HUGE_PAGE
    copy = everything[start:start + source.size]
    copy[:] = source
    return copy


KINDS = {"ids": torch.int64, "offsets": torch.int64}


class Inputs:
    """The arrays of the present case as tensors; those of logits, hidden states and weights in its dtype."""

    def __init__(self, arrays, dtype, rows, cols):
        self.rows, self.cols = rows, cols
        self.kind = torch.bfloat16 if dtype == "bf16" else torch.float32
        for name, raw in arrays.items():
            kind = KINDS.get(name, self.kind if name in ("logits", "hidden", "weights", "rubric") else torch.float32)
            setattr(self, name, torch.from_numpy(raw).view(kind))

    def matrix(self, name, height, width):
        return getattr(self, name).view(height, width)

    @property
    def logit_rows(self):
        return self.matrix("logits", self.rows, self.cols)


def taken(x):
    """The gradient of x, which then is nobody's but the caller's."""
    gradient, x.grad = x.grad, None
    return gradient


# ---- Log-probabilities -----------------------------------------------------------------------------------------------


def of_ids(logprobs, ids):
    return logprobs.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def entropy_of(logits):
    logprobs = torch.log_softmax(logits, -1)
    return -(logprobs.exp() * logprobs).sum(-1)


def token_logprobs(i):
    from trl.trainer.utils import entropy_from_logits, selective_log_softmax

    x = i.logit_rows

    def log_softmax_gather():
        return {"logprobs": of_ids(torch.log_softmax(x, -1), i.ids)}

    def logsumexp_path():
        return {"logprobs": of_ids(x, i.ids) - torch.logsumexp(x, -1)}

    def trl_selective():
        return {"logprobs": selective_log_softmax(x, i.ids)}

    def trl_with_entropy():
        return {"logprobs": selective_log_softmax(x, i.ids), "entropy": entropy_from_logits(x)}

    return [log_softmax_gather, logsumexp_path, trl_selective, trl_with_entropy]


def log_softmax(i):
    x, room = i.logit_rows, torch.empty(i.rows, i.cols, dtype=i.kind)

    def torch_plain():
        return {"logprobs": torch.log_softmax(x, -1)}

    def torch_out():
        return {"logprobs": torch.log_softmax(x, -1, out=room)}

    return [torch_plain, torch_out]


def gather(i):
    x = i.logit_rows

    def torch_gather():
        return {"gathered": of_ids(x, i.ids)}

    return [torch_gather]


# ---- From hidden states ------------------------------------------------------------------------------------------------


def sizes(i):
    h = i.hidden.numel() // i.rows
    return i.matrix("hidden", i.rows, h), i.matrix("weights", i.cols, h)


def linear(i):
    hidden, weights = sizes(i)
    room = torch.empty(i.rows, i.cols, dtype=i.kind)

    def torch_matmul():
        return {"logits": hidden @ weights.T}

    def torch_matmul_out():
        return {"logits": torch.matmul(hidden, weights.T, out=room)}

    def torch_whole():
        logits = hidden @ weights.T
        return {"logprobs": of_ids(logits, i.ids) - torch.logsumexp(logits, -1), "entropy": entropy_of(logits)}

    def torch_chunked():
        parts = []
        for begin in range(0, i.rows, CHUNK):
            part = slice(begin, begin + CHUNK)
            logprobs = torch.log_softmax(hidden[part] @ weights.T, -1)
            parts.append((of_ids(logprobs, i.ids[part]), -(logprobs.exp() * logprobs).sum(-1)))
        logprobs, entropy = zip(*parts)
        return {"logprobs": torch.cat(logprobs), "entropy": torch.cat(entropy)}

    return [torch_matmul, torch_matmul_out, torch_whole, torch_chunked]


def linear_backward(i):
    hidden, weights = (x.clone().requires_grad_() for x in sizes(i))

    def step(rows):
        """Chunks of `rows` rows, each with a backward of its own, so that one chunk's logits live at a time."""
        parts = []
        for begin in range(0, i.rows, rows):
            part = slice(begin, begin + rows)
            logprobs = of_ids(torch.log_softmax(hidden[part] @ weights.T, -1), i.ids[part])
            (logprobs * i.grad[part]).sum().backward()
            parts.append(logprobs.detach())
        return {"logprobs": torch.cat(parts), "grad_hidden": taken(hidden), "grad_weights": taken(weights)}

    def torch_whole():
        return step(i.rows)

    def torch_chunked():
        return step(CHUNK)

    return [torch_whole, torch_chunked]


# ---- Over responses ----------------------------------------------------------------------------------------------------


class Responses:
    """Ragged responses as padded arrays, and what the flat forms keep."""

    def __init__(self, offsets):
        self.offsets = offsets
        self.lengths = offsets[1:] - offsets[:-1]
        self.count, self.longest = len(self.lengths), int(self.lengths.max())
        self.mask = torch.arange(self.longest)[None, :] < self.lengths[:, None]
        self.keep = self.mask.float()
        # each token's share in the mean over responses of the mean over tokens
        self.share = torch.repeat_interleave(1.0 / (self.lengths.float() * self.count), self.lengths)

    def padded(self, flat):
        result = torch.zeros(self.mask.shape, dtype=flat.dtype)
        result[self.mask] = flat
        return result

    def sums(self, flat):
        return torch.segment_reduce(flat, "sum", offsets=self.offsets)


def kl(i, estimate):
    r = Responses(i.offsets)
    policy, ref = r.padded(i.policy), r.padded(i.ref)

    def torch_padded():
        return {"kl": (estimate(ref - policy) * r.keep).sum(-1)}

    def torch_flat():
        return {"kl": r.sums(estimate(i.ref - i.policy))}

    return [torch_padded, torch_flat]


def kl_k1(i):
    return kl(i, torch.neg)


def kl_k3(i):
    return kl(i, lambda d: torch.expm1(d) - d)


def rubric(i):
    r = Responses(i.offsets)
    criteria = i.factors.numel()
    rubric = i.matrix("rubric", criteria, i.cols)
    ids, policy = r.padded(i.ids), r.padded(i.policy)

    def torch_padded():
        scores = torch.stack([(rubric[c][ids] * policy).sum(-1) for c in range(criteria)], -1) * i.factors
        return {"scores": scores, "rewards": scores.sum(-1)}

    def torch_flat():
        scores = torch.stack([r.sums(rubric[c][i.ids] * i.policy) for c in range(criteria)], -1) * i.factors
        return {"scores": scores, "rewards": scores.sum(-1)}

    return [torch_padded, torch_flat]


def clipped(policy, old, ref, advantages):
    """The clipped loss of each token with the KL penalty, as GRPO has it."""
    ratio = torch.exp(policy - old)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - EPSILON, 1 + EPSILON) * advantages)
    d = ref - policy
    return BETA * (torch.exp(d) - d - 1) - surrogate


class Batch:
    """A batch in both layouts."""

    def __init__(self, i):
        self.r = Responses(i.offsets)
        self.old, self.ref = self.r.padded(i.old), self.r.padded(i.ref)
        self.column = i.advantages[:, None]
        self.each = torch.repeat_interleave(i.advantages, self.r.lengths)
        self.i = i

    def padded_loss(self, policy):
        r = self.r
        losses = clipped(policy, self.old, self.ref, self.column)
        return ((losses * r.keep).sum(-1) / r.keep.sum(-1).clamp(min=1.0)).mean()

    def flat_loss(self, policy):
        return (clipped(policy, self.i.old, self.i.ref, self.each) * self.r.share).sum()


def grpo_token(i):
    b = Batch(i)
    policy = b.r.padded(i.policy)

    def torch_padded():
        return {"losses": (clipped(policy, b.old, b.ref, b.column) * b.r.keep)}, lambda x: x[b.r.mask]

    def torch_flat():
        return {"losses": clipped(i.policy, i.old, i.ref, b.each)}

    return [torch_padded, torch_flat]


def grpo_loss(i):
    b = Batch(i)
    policy, flat = b.r.padded(i.policy).requires_grad_(), i.policy.clone().requires_grad_()

    def torch_padded():
        loss = b.padded_loss(policy)
        loss.backward()
        return {"loss": loss.detach().double(), "grad_logprobs": taken(policy)}, lambda x: x[b.r.mask] if x.ndim else x

    def torch_flat():
        loss = b.flat_loss(flat)
        loss.backward()
        return {"loss": loss.detach().double(), "grad_logprobs": taken(flat)}

    return [torch_padded, torch_flat]


def grpo_from_logits(i):
    from trl.trainer.utils import entropy_from_logits, selective_log_softmax

    b = Batch(i)
    x = i.logit_rows.requires_grad_()

    def step(logprobs_of, with_entropy=False):
        logprobs = logprobs_of(x, i.ids)
        loss = b.flat_loss(logprobs.float())
        loss.backward()
        results = {"loss": loss.detach().double(), "logprobs": logprobs.detach(), "grad_logits": taken(x)}
        if with_entropy:
            with torch.no_grad():
                results["entropy"] = entropy_from_logits(x)
        return results

    def log_softmax_gather():
        return step(lambda logits, ids: of_ids(torch.log_softmax(logits, -1), ids))

    def logsumexp_path():
        return step(lambda logits, ids: of_ids(logits, ids) - torch.logsumexp(logits, -1))

    def trl_selective():
        return step(selective_log_softmax)

    def trl_with_entropy():
        return step(selective_log_softmax, True)

    return [log_softmax_gather, logsumexp_path, trl_selective, trl_with_entropy]


OPERATIONS = {f.__name__: f for f in (token_logprobs, log_softmax, gather, linear, linear_backward, kl_k1, kl_k3, rubric,
                                      grpo_token, grpo_loss, grpo_from_logits)}
TRAINS = ("linear_backward", "grpo_loss", "grpo_from_logits")


# ---- Lines -------------------------------------------------------------------------------------------------------------


class Server:
    def __init__(self):
        self.arrays, self.ways, self.last = {}, {}, None
        self.taken, self.ready = 0, 0  # memory of the last go, and what lay ready for its results

    def run(self, variant):
        self.last = None  # the last results' memory goes before new ones come
        self.last = self.ways[variant]()

    def results(self):
        found, trim = self.last if isinstance(self.last, tuple) else (self.last, lambda x: x)
        return {name: trim(x) for name, x in found.items()}

    def load(self, name, path):
        self.arrays[name] = private_copy(path)
        return "done"

    def prepare(self, operation, dtype, rows, cols):
        self.ways, self.last = {}, None
        gc.collect()
        torch.set_grad_enabled(operation in TRAINS)
        inputs = Inputs(self.arrays, dtype, int(rows), int(cols))
        self.ways = {way.__name__: way for way in OPERATIONS[operation](inputs)}
        return "ready " + " ".join(self.ways)

    def check(self, variant, prefix):
        self.run(variant)
        found = self.results()
        for name, x in found.items():
            x = x.detach()
            (x.float() if x.dtype == torch.bfloat16 else x).contiguous().numpy().tofile(f"{prefix}.{name}")
        return "done " + " ".join(found)

    def go(self, variant, count, warm):
        self.last = None
        gc.collect()
        LIBC.malloc_trim(0)  # memory that was freed must not pass for memory that is not needed
        with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
            reset.write("5")  # the high-water mark starts again
        before = own_memory("VmRSS")
        if warm == "1":
            self.run(variant)
        times = []
        for _ in range(int(count)):
            self.last = None
            begin = time.perf_counter()
            self.run(variant)
            times.append(time.perf_counter() - begin)
        self.taken = own_memory("VmHWM") - before
        self.ready = sum(x.nbytes for x in self.results().values()) if variant.endswith("_out") else 0
        return "times " + " ".join(f"{t:.9g}" for t in times)

    def peak(self):
        return f"peak {self.taken} {self.ready}"

    def clear(self):
        self.arrays, self.ways, self.last = {}, {}, None
        gc.collect()
        return "done"


def main():
    import trl

    answers, sys.stdout = sys.stdout, sys.stderr  # a library that prints must not answer for us
    server = Server()
    print(f"hello torch {torch.__version__} trl {trl.__version__}", file=answers, flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "quit":
            return
        try:
            answer = getattr(server, word)(*rest)
        except Exception as error:  # news for the driver, not the end of the run
            traceback.print_exc()
            answer = "error " + " ".join(f"{type(error).__name__}: {error}".split())[:300]
        print(answer, file=answers, flush=True)


main()
