"""PyTorch and TRL. Each way is the fastest form we know of what its name says. What any user would keep from step to step
(padded arrays, masks, weights of tokens) is made beforehand and not timed. Responses are padded to the longest, as TRL
holds them (`padded`), or lie one after another (`flat`)."""
import functools
from importlib.metadata import PackageNotFoundError, version

import torch

BETA, EPSILON = 0.04, 0.2
CHUNK = 256  # rows of logits at a time in the chunked forms


def trl_version():
    try:
        return f" trl {version('trl')}"
    except PackageNotFoundError:
        return ""


VERSION = torch.__version__ + trl_version()
start = torch.set_num_threads


# ---- softmax, log_softmax, logsumexp -----------------------------------------------------------------------------------


def reduction(function):
    """Calls it as users do (`torch`) and writing into memory that is already there (`torch_out`)."""
    def ways(i):
        whole = i.job.op == "logsumexp_all"
        shape = {"logsumexp": (i.rows,), "logsumexp_all": ()}.get(i.job.op, i.job.stored)
        x, axis = i.input.view(i.job.stored), (0, 1) if whole else i.job.axis
        out = i.room("result", *shape)

        return {"torch": lambda: {"result": function(x, axis)}, "torch_out": lambda: {"result": function(x, axis, out=out)}}
    return ways


# ---- Inputs --------------------------------------------------------------------------------------------------------------

KINDS = {"ids": torch.int64, "offsets": torch.int64}
OF_DTYPE = ("input", "logits", "hidden", "weights", "rubric", "a", "q", "k", "v", "grad")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Inputs:
    """The arrays of a job as tensors; those of logits, hidden states and weights in its dtype."""

    def __init__(self, job):
        self.job, self.rows, self.cols = job, job.rows, job.cols
        self.kind = DTYPES[job.dtype]
        for name, raw in job.arrays.items():
            kind = KINDS.get(name, self.kind if name in OF_DTYPE else torch.float32)
            setattr(self, name, torch.from_numpy(raw).view(kind))

    def matrix(self, name, height, width):
        return getattr(self, name).view(height, width)

    def room(self, name, *shape):
        """Memory for a result in the job's dtype."""
        count = functools.reduce(lambda a, b: a * b, shape, 1)
        return torch.from_numpy(self.job.result(name, count * self.kind.itemsize)).view(self.kind).view(shape)

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
    return {
        "log_softmax_gather": lambda: {"logprobs": of_ids(torch.log_softmax(x, -1), i.ids)},
        "logsumexp_path": lambda: {"logprobs": of_ids(x, i.ids) - torch.logsumexp(x, -1)},
        "trl_selective": lambda: {"logprobs": selective_log_softmax(x, i.ids)},
        "trl_with_entropy": lambda: {"logprobs": selective_log_softmax(x, i.ids), "entropy": entropy_from_logits(x)},
    }


def fused_log_softmax(i):
    x, room = i.logit_rows, i.room("logprobs", i.rows, i.cols)
    return {
        "torch_plain": lambda: {"logprobs": torch.log_softmax(x, -1)},
        "torch_out": lambda: {"logprobs": torch.log_softmax(x, -1, out=room)},
    }


def gather(i):
    x = i.logit_rows
    return {"torch_gather": lambda: {"gathered": of_ids(x, i.ids)}}


# ---- From hidden states ------------------------------------------------------------------------------------------------


def sizes(i):
    h = i.hidden.numel() // i.rows
    return i.matrix("hidden", i.rows, h), i.matrix("weights", i.cols, h)


def linear(i):
    hidden, weights = sizes(i)
    room = i.room("logits", i.rows, i.cols)

    def whole():
        logits = hidden @ weights.T
        return {"logprobs": of_ids(logits, i.ids) - torch.logsumexp(logits, -1), "entropy": entropy_of(logits)}

    def chunked():
        parts = []
        for begin in range(0, i.rows, CHUNK):
            part = slice(begin, begin + CHUNK)
            logprobs = torch.log_softmax(hidden[part] @ weights.T, -1)
            parts.append((of_ids(logprobs, i.ids[part]), -(logprobs.exp() * logprobs).sum(-1)))
        logprobs, entropy = zip(*parts)
        return {"logprobs": torch.cat(logprobs), "entropy": torch.cat(entropy)}

    return {
        "torch_matmul": lambda: {"logits": hidden @ weights.T},
        "torch_matmul_out": lambda: {"logits": torch.matmul(hidden, weights.T, out=room)},
        "torch_whole": whole,
        "torch_chunked": chunked,
    }


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

    return {"torch_whole": lambda: step(i.rows), "torch_chunked": lambda: step(CHUNK)}


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
    return {
        "torch_padded": lambda: {"kl": (estimate(ref - policy) * r.keep).sum(-1)},
        "torch_flat": lambda: {"kl": r.sums(estimate(i.ref - i.policy))},
    }


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

    return {"torch_padded": torch_padded, "torch_flat": torch_flat}


def clipped(policy, old, ref, advantages):
    """The clipped loss of each token with the KL penalty, as GRPO has it."""
    ratio = torch.exp(policy - old)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - EPSILON, 1 + EPSILON) * advantages)
    d = ref - policy
    return BETA * (torch.exp(d) - d - 1) - surrogate


class Padded(dict):
    """Results, of which the padded ones are cut to the tokens when they are read."""

    def __init__(self, results, mask):
        super().__init__(results)
        self.mask = mask

    def items(self):
        return [(name, x[self.mask] if x.ndim else x) for name, x in super().items()]


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
    return {
        "torch_padded": lambda: Padded({"losses": clipped(policy, b.old, b.ref, b.column) * b.r.keep}, b.r.mask),
        "torch_flat": lambda: {"losses": clipped(i.policy, i.old, i.ref, b.each)},
    }


def grpo_loss(i):
    b = Batch(i)
    policy, flat = b.r.padded(i.policy).requires_grad_(), i.policy.clone().requires_grad_()

    def torch_padded():
        loss = b.padded_loss(policy)
        loss.backward()
        return Padded({"loss": loss.detach().double(), "grad_logprobs": taken(policy)}, b.r.mask)

    def torch_flat():
        loss = b.flat_loss(flat)
        loss.backward()
        return {"loss": loss.detach().double(), "grad_logprobs": taken(flat)}

    return {"torch_padded": torch_padded, "torch_flat": torch_flat}


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

    return {
        "log_softmax_gather": lambda: step(lambda logits, ids: of_ids(torch.log_softmax(logits, -1), ids)),
        "logsumexp_path": lambda: step(lambda logits, ids: of_ids(logits, ids) - torch.logsumexp(logits, -1)),
        "trl_selective": lambda: step(selective_log_softmax),
        "trl_with_entropy": lambda: step(selective_log_softmax, True),
    }


# ---- Products ------------------------------------------------------------------------------------------------------------


def matmul(i):
    k = i.a.numel() // i.rows
    a, weights = i.matrix("a", i.rows, k), i.matrix("weights", i.cols, k)
    room = i.room("product", i.rows, i.cols)
    return {"torch_out": lambda: {"product": torch.matmul(a, weights.t(), out=room)}}


def heads_of(i, grad):
    """q, k, v and the call; [1, heads, tokens, dim]."""
    job = i.job
    shapes = {"q": (1, job.heads, i.rows, job.dim), "k": (1, job.kv_heads, i.cols, job.dim),
              "v": (1, job.kv_heads, i.cols, job.dim)}
    inputs = [getattr(i, name).view(shape).requires_grad_(grad) for name, shape in shapes.items()]
    return inputs, lambda: torch.nn.functional.scaled_dot_product_attention(
        *inputs, is_causal=job.causal == 1, enable_gqa=job.kv_heads != job.heads)


def attention(i):
    _, call = heads_of(i, False)
    return {"torch": lambda: {"output": call()}}


def attention_backward(i):
    inputs, call = heads_of(i, True)
    output = call()
    grad = i.grad.view(output.shape)

    def backward():
        gradients = torch.autograd.grad(output, inputs, grad, retain_graph=True)
        return dict(zip(("grad_q", "grad_k", "grad_v"), gradients))

    return {"torch": backward}


# ---- The table -----------------------------------------------------------------------------------------------------------

TRAINS = ("linear_backward", "grpo_loss", "grpo_from_logits", "attention_backward", "attention_backward_bf16_gradient")


def operation(function):
    def ways(job):
        torch.set_grad_enabled(job.op in TRAINS)
        return function(Inputs(job))
    return ways


OPERATIONS = {f.__name__: operation(f) for f in (
    token_logprobs, fused_log_softmax, gather, linear, linear_backward, kl_k1, kl_k3, rubric, grpo_token, grpo_loss,
    grpo_from_logits, matmul, attention, attention_backward)}
OPERATIONS |= {name: operation(reduction(getattr(torch, name))) for name in ("softmax", "log_softmax", "logsumexp")}
OPERATIONS["attention_bf16_weights"] = OPERATIONS["attention"]  # which rounds them too
OPERATIONS["attention_backward_bf16_gradient"] = OPERATIONS["attention_backward"]
OPERATIONS["logsumexp_all"] = OPERATIONS["logsumexp"]
