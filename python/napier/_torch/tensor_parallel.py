"""The products of a patched model divided over a process group by their outputs. No sum over inputs is split, forward or backward,
so every number has the bits of one process (docs/scale.md)."""

import zlib
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.function import once_differentiable
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from .. import _napier
from ..torch.distributed import _Group, linear_token_logprobs
from . import layers

Tensor = torch.Tensor


class Ranks(_Group):
    """The group of a mesh of one dimension. A dimension of n elements has ceil(n / N) on each rank, and fewer on the last ones, as
    DTensor's Shard has them."""

    def __init__(self, mesh):
        if not isinstance(mesh, DeviceMesh) or mesh.ndim != 1:
            raise ValueError(f"mesh: expected a DeviceMesh of one dimension, got {mesh!r}")
        super().__init__(mesh.get_group())
        self.mesh = mesh

    def part(self, n):
        """The elements of this rank: (first, end)."""
        each = -(-n // self.size)
        return min(self.rank * each, n), min((self.rank + 1) * each, n)

    def mine(self, x, dim):
        begin, end = self.part(x.shape[dim])
        return x.narrow(dim, begin, end - begin)

    def gathered(self, x, dim, n):
        """x, of which each rank has its part of a dimension of n elements, whole."""
        if self.size == 1:
            return x
        dim %= x.ndim
        each = -(-n // self.size)
        x = nn.functional.pad(x, [0, 0] * (x.ndim - 1 - dim) + [0, each - x.shape[dim]]).contiguous()
        parts = self.gather(x.view(torch.uint8), "the exchange of activations").view(x.dtype)  # gloo does not know every dtype
        return torch.cat(parts.unbind(), dim).narrow(dim, 0, n)

    def columns(self, weight, rows):
        """This rank's columns of all rows of a weight, of which each rank has its rows."""
        if self.size == 1:
            return weight
        each, wide = -(-rows // self.size), -(-weight.shape[1] // self.size)
        padded = nn.functional.pad(weight, [0, self.size * wide - weight.shape[1], 0, each - weight.shape[0]])
        sent = self._out(padded.view(each, self.size, wide).transpose(0, 1).contiguous().view(torch.uint8))
        received = torch.empty_like(sent)
        try:
            dist.all_to_all_single(received, sent, group=self.group)
        except RuntimeError as error:
            raise self._failed("the exchange of weights", error) from error
        return received.view(weight.dtype).view(self.size * each, wide)[:rows].to(weight.device)

    def compare(self, name, *tensors):
        """Raises on every rank if the tensors differ."""
        code = 0
        for x in tensors:
            code = zlib.crc32(x.detach().contiguous().reshape(-1).view(torch.uint8).numpy(), code)
        codes = self.gather(torch.tensor([code]), f"the comparison of {name}").flatten().tolist()
        others = [str(r) for r, other in enumerate(codes) if other != codes[0]]
        if others:
            raise ValueError(f"{name}: not the same on every rank of the mesh (other than rank 0's on {', '.join(others)})")


class _Gather(torch.autograd.Function):
    """A dimension whole, for steps that every rank repeats. So each has the whole gradient, and takes its part."""

    @staticmethod
    def forward(ctx, x, ranks, dim, n):
        ctx.ranks, ctx.dim = ranks, dim
        return ranks.gathered(x, dim, n)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return ctx.ranks.mine(grad, ctx.dim), None, None, None


class _Take(torch.autograd.Function):
    """The reverse: this rank's part of what every rank has."""

    @staticmethod
    def forward(ctx, x, ranks, dim):
        ctx.ranks, ctx.dim, ctx.n = ranks, dim, x.shape[dim]
        return ranks.mine(x, dim).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return ctx.ranks.gathered(grad, ctx.dim, ctx.n), None, None


class _Product(torch.autograd.Function):
    """napier.torch.linear whose weight and bias have this rank's outputs. Its results are this rank's, or gathered.

    The gradient of x sums over all outputs. So each rank computes it for some inputs, from the whole gradient of the results and
    its columns of the weight, and these are gathered."""

    @staticmethod
    def forward(ctx, x, weight, bias, ranks, outputs, compute, gathers):
        ctx.save_for_backward(x, weight, bias)
        ctx.how = ranks, outputs, compute, gathers
        y = layers._linear(x, weight, bias, compute, False)
        return ranks.gathered(y, -1, outputs) if gathers else y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x, weight, bias), (ranks, outputs, compute, gathers) = ctx.saved_tensors, ctx.how
        wants_x, wants_weight, wants_bias, *_ = ctx.needs_input_grad
        local = ranks.mine(grad, -1).contiguous() if gathers else grad
        _, to_weight, to_bias = layers._linear_backward(local, x, weight, bias, compute, False, False, wants_weight, wants_bias)
        to_x = None
        if wants_x:
            whole = layers._rows(grad if gathers else ranks.gathered(grad, -1, outputs))
            part = _napier.matmul(whole, ranks.columns(weight, outputs), dtype=x.dtype)
            begin, end = ranks.part(x.shape[-1])
            to_x = ranks.gathered(part[:, : end - begin], -1, x.shape[-1]).reshape(x.shape)
        return to_x, to_weight if wants_weight else None, to_bias if wants_bias else None, *4 * (None,)


# ---- Forward methods of modules: `self._napier` is the mode, `self._napier_ranks` the group -----------------------------------------


def _product(self, x, gathers):
    bias = None if self.bias is None else self.bias.to_local()
    return _Product.apply(x, self.weight.to_local(), bias, self._napier_ranks, self.out_features, self._napier.compute, gathers)


def to_parts(self, input):
    """A product whose results stay where they are: the queries, keys and values of some heads, a part of the gated unit."""
    return _product(self, input, False)


def from_parts(self, input):
    """A product of what to_parts has begun."""
    return _product(self, _Gather.apply(input, self._napier_ranks, -1, self.in_features), True)


def whole(self, input):
    """The head."""
    return _product(self, input, True)


def head_norm(norm):
    """The norm of this rank's heads. The gradient of its weight sums over all heads, so with gradients every rank has them all."""

    def forward(self, hidden_states):
        if not (torch.is_grad_enabled() and self.weight.requires_grad):
            return norm(self, hidden_states)
        ranks = self._napier_ranks
        heads = hidden_states.shape[-2] * ranks.size
        return _Take.apply(norm(self, _Gather.apply(hidden_states, ranks, -2, heads)), ranks, -2)

    return forward


def token_logprobs(hidden, weight, ids, **options):
    """linear_token_logprobs with a head of which each rank has some rows."""
    ranks = weight.device_mesh.size()
    each = -(-weight.shape[0] // ranks)
    sizes = [max(0, min(each, weight.shape[0] - r * each)) for r in range(ranks)]
    return linear_token_logprobs(hidden, weight.to_local(), ids, weight.device_mesh.get_group(), sizes=sizes, **options)


# ---- Weights -------------------------------------------------------------------------------------------------------------------


def check(config, ranks):
    for name in ("num_attention_heads", "num_key_value_heads"):
        if getattr(config, name) % ranks.size:
            raise NotImplementedError(f"{name}: {getattr(config, name)} heads cannot be divided over {ranks.size} ranks of the mesh")


def divide(module: nn.Module, ranks: Any):
    """Gives a linear module the rows of this rank, as DTensors."""
    for name, p in list(module.named_parameters(recurse=False)):
        local = ranks.mine(p.detach(), 0).clone()
        shape = p.shape
        stride = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
        sharded = DTensor.from_local(local, ranks.mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)
        setattr(module, name, nn.Parameter(sharded, p.requires_grad))


def unite(module: nn.Module):
    """Undoes divide. All ranks call it."""
    for name, p in list(module.named_parameters(recurse=False)):
        if isinstance(p, DTensor):
            whole = module._napier_ranks.gathered(p.to_local().detach(), 0, p.shape[0])
            setattr(module, name, nn.Parameter(whole.clone(), p.requires_grad))
