"""Training on any number of processes with the same bits: gradients are added in a fixed binary tree over the sequences of the
global batch.

>>> tree = napier.torch.data_parallel.SequenceTree(ddp, batch=8)         # doctest: +SKIP
>>> for i, sequence in enumerate(mine):                                  # doctest: +SKIP
...     with ddp.no_sync() if i < len(mine) - 1 else contextlib.nullcontext():
...         loss_of(ddp, sequence).backward()
>>> tree.clip_grad_norm_(1.0)                                            # doctest: +SKIP
>>> optimizer.step()                                                     # doctest: +SKIP

Of B sequences rank r of N has numbers r B/N .. (r + 1) B/N - 1, in this order, and each call of backward is for one of them. Then a
rank's sum is a subtree, and the ranks add the upper levels. With FSDP the ranks add the lower levels, and rank r has numbers r,
N + r, ... Every node is rounded to the parameter's dtype, so a sum has the same bits wherever its tree is cut. docs/scale.md counts
messages and bytes, and says what else a run needs.
"""

import concurrent.futures
import contextlib
import functools
import math
import weakref
import zlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .distributed import _Group

__all__ = ["SequenceTree", "attach", "clip_grad_norm_"]

_CHUNK = 1 << 18  # elements whose squares are added in a tree


def _is_power_of_two(n):
    return n > 0 and n & (n - 1) == 0


# ---- The levels of the tree between ranks --------------------------------------------------------------------------------------


class _Ranks(_Group):
    """Sums over ranks 0 .. N - 1, N a power of two, as ((0 + 1) + (2 + 3)) + ...: N - 1 of N parts of the data go out and come back,
    as in a ring, in 2 log2 N messages (Rabenseifner's recursive halving and doubling)."""

    def add_(self, x):
        """x [n] plus those of the other ranks, in place."""
        begin, end, passed = 0, len(x), []
        for bit in self._bits():
            middle = begin + (end - begin) // 2
            keep, give = ((begin, middle), (middle, end))[:: -1 if self.rank & bit else 1]
            other = self._exchange(x[give[0] : give[1]], keep[1] - keep[0], self.rank ^ bit)
            mine = x[keep[0] : keep[1]]
            torch.add(*self._in_order(mine, other, bit), out=mine)
            passed.append(give)
            begin, end = keep
        for bit, there in zip(reversed(self._bits()), reversed(passed)):
            x[there[0] : there[1]] = self._exchange(x[begin:end], there[1] - there[0], self.rank ^ bit)
            begin, end = min(begin, there[0]), max(end, there[1])
        return x

    def scatter(self, x):
        """This rank's part of the sum of x [N * n], by the first half of add_."""
        rows, x = list(range(self.size)), x.view(self.size, -1)
        for bit in self._bits():
            keep, give = ([i for i, row in enumerate(rows) if (row ^ self.rank) & bit == there] for there in (0, bit))
            mine = x[keep]
            other = self._exchange(x[give].view(-1), mine.numel(), self.rank ^ bit).view(mine.shape)
            rows, x = [rows[i] for i in keep], torch.add(*self._in_order(mine, other, bit))
        return x.view(-1)

    def _bits(self):
        return [1 << i for i in range(self.size.bit_length() - 1)]

    def _in_order(self, mine, other, bit):
        return (other, mine) if self.rank & bit else (mine, other)

    def _exchange(self, sent, n, rank):
        """Sends numbers to a rank, and receives n. Bytes: gloo does not know every dtype."""
        size = n * sent.dtype.itemsize
        [received] = self.swap([(rank, sent.view(torch.uint8))], [(rank, (size,), torch.uint8)], "the sum of gradients")
        return received.to(sent.device).view(sent.dtype)


class _ReduceScatter:
    """The sum of FSDP2 (torch.distributed.fsdp's set_custom_reduce_scatter): one sequence of each rank."""

    def __init__(self, ranks, average):
        self.ranks, self.average = ranks, average

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        output_tensor.copy_(self.ranks.scatter(input_tensor))
        if self.average and op == dist.ReduceOp.AVG:  # otherwise FSDP has divided
            output_tensor.div_(self.ranks.size)


# ---- The levels within a rank ------------------------------------------------------------------------------------------------------


class _Nodes:
    """The sum of `count` leaves of one parameter, which come in order. No more than log2(count) + 1 nodes exist at a time."""

    def __init__(self, name, count):
        self.name, self.count, self.seen, self.stack = name, count, 0, []

    def add(self, leaf):
        """The sum of all leaves after the last one, else None."""
        self.seen += 1
        node, height = leaf, 0
        while self.stack and self.stack[-1][0] == height:
            left = self.stack.pop()[1]
            node, height = left.add_(node) if height else left + node, height + 1  # a leaf may be someone else's
        self.stack.append((height, node))
        if self.seen < self.count:
            return None
        self.seen, nodes = 0, [node for _, node in self.stack]
        self.stack = []
        return functools.reduce(lambda right, left: left + right, reversed(nodes))


class SequenceTree:
    """Makes the gradients of a model sums over sequences in a fixed binary tree, ((0 + 1) + (2 + 3)) + ..., whose bits do not depend
    on the number of processes. Every call of backward is for one sequence, until remove().

    A step of the optimizer that follows fewer or more sequences than the batch has is an error.

    Parameters
    ----------
    model : DistributedDataParallel, a model of fully_shard (FSDP2) over one dimension, or any module in a single process. With FSDP
        sequence number i of the batch is for rank i % N, as each sequence's gradients are added over the ranks at once
    batch : how many sequences all processes have for one step
    average : whether gradients are divided by the number of processes, as DistributedDataParallel does. The division is exact,
        except of numbers below 2^-126 times that number

    Examples
    --------
    >>> import torch, napier.torch.data_parallel
    >>> model = torch.nn.Linear(2, 1)
    >>> tree = napier.torch.data_parallel.SequenceTree(model, batch=4)
    >>> for x in torch.eye(4, 2):
    ...     model(x).sum().backward()
    ...
    >>> model.weight.grad.tolist()
    [[1.0, 1.0]]
    """

    def __init__(self, model, batch, *, average=True):
        self._ranks, self.average = None, average
        self._handles = contextlib.ExitStack()
        wrapped, shards = isinstance(model, DistributedDataParallel), _shards_of(model)
        group = self._group_of(model, wrapped, shards)
        size = 1 if group is None else group.size
        names = [(name, p) for name, p in (model.module if wrapped else model).named_parameters() if p.requires_grad]
        if group is not None:
            group.compare([batch, bool(average), len(names), sum(p.numel() for _, p in names)], names)
        if not _is_power_of_two(size):
            raise ValueError(f"model: the process group has {size} ranks, and only a power of two can add in a binary tree")
        each = batch // size
        if batch < 1 or each * size != batch or size > 1 and not shards and not _is_power_of_two(each):
            raise ValueError(
                f"batch: {batch} sequences on {size} processes are not a power of two for each, so a process's sequences are no subtree"
            )
        self.batch = batch
        self._nodes = {p: _Nodes(name, each) for name, p in names}
        for shard in shards:
            shard.set_custom_reduce_scatter(_ReduceScatter(_Ranks(group.group), average))
        if wrapped:
            self._register(model, group)
        for p, nodes in self._nodes.items():
            hook = functools.partial(_take_shard, nodes) if shards else functools.partial(_take, p, nodes)
            self._handles.callback((p.register_post_accumulate_grad_hook if shards else p.register_hook)(hook).remove)
        self._handles.callback(register_optimizer_step_pre_hook(functools.partial(_check_step, weakref.ref(self))).remove)

    @staticmethod
    def _group_of(model, wrapped, shards):
        if wrapped:
            return _Comparing(model.process_group)
        if shards:
            meshes = {p.device_mesh for p in model.parameters() if hasattr(p, "device_mesh")}
            half = any(p.dtype == torch.float16 for p in model.parameters())
            if len(meshes) != 1 or any(mesh.ndim != 1 for mesh in meshes) or half:
                raise NotImplementedError("model: expected fully_shard over one dimension of a mesh, and weights of float32 or bfloat16")
            return _Comparing(meshes.pop().get_group())
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            raise ValueError(
                f"model: expected DistributedDataParallel or fully_shard on {dist.get_world_size()} processes, got {type(model).__name__}"
            )
        return None

    def _register(self, model, group):
        """The hook of DistributedDataParallel. Its messages have a group and a thread of their own, so that backward goes on."""
        backend, members = dist.get_backend(group.group), dist.get_process_group_ranks(group.group)
        self._ranks = _Ranks(dist.new_group(members, backend=backend, use_local_synchronization=True))
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "napier.torch.data_parallel")
        self._handles.callback(self._thread.shutdown, wait=False)
        model.register_comm_hook(self, _reduce)

    def remove(self):
        """Gives gradients their ordinary sums again. A DistributedDataParallel keeps the hook, which cannot be replaced.

        Examples
        --------
        >>> import torch, napier.torch.data_parallel
        >>> model = torch.nn.Linear(2, 1)
        >>> napier.torch.data_parallel.SequenceTree(model, batch=4).remove()
        >>> model(torch.ones(2)).sum().backward()
        """
        for nodes in self._nodes.values():
            nodes.count = 1
        self._handles.close()

    def clip_grad_norm_(self, max_norm):
        """clip_grad_norm_ of the model's parameters, which must have the gradients of the whole batch.

        Examples
        --------
        >>> import torch, napier.torch.data_parallel
        >>> model = torch.nn.Linear(3, 1)
        >>> tree = napier.torch.data_parallel.SequenceTree(model, batch=1)
        >>> model(torch.ones(3)).sum().backward()
        >>> tree.clip_grad_norm_(1.0).item(), [round(g, 4) for g in model.weight.grad[0].tolist()]
        (2.0, [0.5, 0.5, 0.5])
        """
        self._check(self._nodes)
        return clip_grad_norm_(self._nodes, max_norm)

    def _check(self, parameters):
        for p in parameters:
            nodes = self._nodes.get(p)
            if nodes is not None and nodes.seen:
                raise RuntimeError(
                    f"napier.torch.data_parallel: {nodes.name} has gradients of {nodes.seen} sequences in place of {nodes.count}; every "
                    f"step needs a backward call for each of this process's {nodes.count}, in which each parameter takes part"
                )


def _shards_of(model):
    """The modules that fully_shard has made of a model."""
    if not dist.is_available():
        return []
    from torch.distributed.fsdp import FSDPModule

    return [module for module in model.modules() if isinstance(module, FSDPModule)]


class _Comparing(_Group):
    def compare(self, words, names):
        """Raises on every rank if the ranks differ."""
        code = zlib.crc32(repr([(name, tuple(p.shape), str(p.dtype)) for name, p in names]).encode())
        rows = self.gather(torch.tensor([*map(int, words), code]), "the comparison of arguments").tolist()
        for what, column in zip(
            ("batch", "average", "model: its parameters", "model: its parameters", "model: its parameters"), zip(*rows)
        ):
            if len(set(column)) > 1:
                raise ValueError(f"{what} differ between ranks: {list(column)}")


def _take(parameter, nodes, grad):
    """Before a gradient is accumulated: keeps it as a leaf. The last leaf of a step becomes the sum."""
    if grad.layout != torch.strided:
        raise NotImplementedError(f"{nodes.name}: its gradient has the layout {grad.layout}, and only dense ones are added in a tree")
    if parameter.grad is not None and nodes.seen == 0 and bool((parameter.grad != 0).any()):
        raise RuntimeError(f"napier.torch.data_parallel: {nodes.name} has a gradient of the step before; call optimizer.zero_grad()")
    parameter.grad = None
    total = nodes.add(grad)
    return grad if total is None else total


def _take_shard(nodes, parameter):
    """After the gradient of a shard has been set: the same."""
    grad, parameter.grad = parameter.grad, None
    parameter.grad = nodes.add(grad)


def _check_step(tree, optimizer, args, options):
    tree = tree()
    if tree is not None:
        tree._check(p for group in optimizer.param_groups for p in group["params"])


def _reduce(tree, bucket):
    """The communication hook: the sum over ranks of a bucket of gradients."""
    flat = bucket.buffer()
    future: torch.futures.Future = torch.futures.Future(devices=[flat.device] if flat.is_cuda else None)
    if tree._ranks.size == 1:  # as accelerate has it, without no_sync
        future.set_result(flat)
        return future
    tree._check(bucket.parameters())
    if flat.is_cuda:  # the messages are in the stream's order
        _fulfil(future, tree, flat)
    else:
        tree._thread.submit(_fulfil, future, tree, flat)
    return future


def _fulfil(future, tree, flat):
    try:
        future.set_result(_sum(tree, flat))
    except Exception as error:
        future.set_exception(error)


def _sum(tree, flat):
    total = tree._ranks.add_(flat)
    return total.div_(tree._ranks.size) if tree.average else total


# ---- The norm ------------------------------------------------------------------------------------------------------------------


def _halved(x):
    """The sum of x [n] as a tree of sums of halves. Elementwise, so threads do not change its bits."""
    if x.numel() == 0:
        return 0.0
    whole = x.new_zeros(1 << (x.numel() - 1).bit_length())
    whole[: x.numel()] = x
    while whole.numel() > 1:
        whole = torch.add(*whole.view(2, -1))
    return whole.item()


def _whole(grad):
    grad = grad.detach()
    return (grad.full_tensor() if hasattr(grad, "full_tensor") else grad).reshape(-1)


def clip_grad_norm_(parameters, max_norm):
    """torch.nn.utils.clip_grad_norm_ in a fixed order: the norm of all gradients, which are then multiplied by max_norm / norm if the
    norm is larger. The squares are those of float64, and each tensor's are added in a tree, so the bits do not depend on the number
    of threads, nor on a DTensor's shards, which are gathered.

    Examples
    --------
    >>> import torch, napier.torch.data_parallel
    >>> w = torch.zeros(2, requires_grad=True)
    >>> w.grad = torch.tensor([3.0, 4.0])
    >>> napier.torch.data_parallel.clip_grad_norm_([w], 1.0).item(), [round(g, 4) for g in w.grad.tolist()]
    (5.0, [0.6, 0.8])
    """
    grads = [p.grad for p in ([parameters] if isinstance(parameters, torch.Tensor) else parameters) if p.grad is not None]
    total = math.fsum(_halved(part.double().square()) for g in grads for part in _whole(g).split(_CHUNK)) ** 0.5
    factor = max_norm / (total + 1e-6)
    if factor < 1 or math.isnan(factor):
        for g in grads:
            g.mul_(factor)
    return torch.tensor(total, dtype=torch.float32)


# ---- Trainers of TRL -------------------------------------------------------------------------------------------------------------


def attach(trainer):
    """Gives a GRPOTrainer of TRL, before train(), a SequenceTree and its clip_grad_norm_, so that `accelerate launch` trains the same
    weights with 1, 2, 4, ... processes. Returns the trainer.

    per_device_train_batch_size is 1, and gradient_accumulation_steps is how many sequences a process has; so with twice the
    processes, half of these. A generation is trained on in one step (steps_per_generation as it is by default), in the order of the
    dataset: TRL shuffles it within each process. Completions must not depend on the process: napier.trl.GRPOTrainer's and Rollout's
    do not.

    Examples
    --------
    >>> import datasets, napier.torch.data_parallel, napier.trl, transformers, trl
    >>> model = transformers.AutoModelForCausalLM.from_pretrained("Qwen3-0.6B")
    >>> tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file="Qwen3-0.6B/tokenizer.json",
    ...                                                  eos_token="<|im_end|>", pad_token="<|endoftext|>")
    >>> config = trl.GRPOConfig("run", max_steps=1, per_device_train_batch_size=1, gradient_accumulation_steps=2, bf16=False,
    ...                         num_generations=2, max_completion_length=4, use_cpu=True, report_to="none", disable_tqdm=True)
    >>> data = datasets.Dataset.from_dict({"prompt": ["2 + 2 =", "3 + 3 ="]})
    >>> trainer = napier.trl.GRPOTrainer(model, lambda completions, **_: [float("4" in c) for c in completions],
    ...                                  args=config, train_dataset=data, processing_class=tokenizer)
    >>> napier.torch.data_parallel.attach(trainer).train().global_step  # doctest: +ELLIPSIS
    {...}
    1
    """
    args, processes = trainer.args, trainer.accelerator.num_processes
    if not hasattr(trainer, "_generate_and_score_completions"):
        raise ValueError(f"trainer: expected a GRPOTrainer of TRL, got {type(trainer).__name__}, whose processes have every Nth sequence")
    if args.per_device_train_batch_size != 1:
        raise ValueError(
            f"per_device_train_batch_size: {args.per_device_train_batch_size}, but every call of backward must be for one sequence; set "
            f"it to 1, and gradient_accumulation_steps to {args.per_device_train_batch_size * args.gradient_accumulation_steps}"
        )
    if args.steps_per_generation != args.gradient_accumulation_steps:
        raise ValueError(
            f"steps_per_generation: {args.steps_per_generation}, but a generation must be trained on in one step, of "
            f"gradient_accumulation_steps = {args.gradient_accumulation_steps}"
        )
    batch, step = args.gradient_accumulation_steps * processes, trainer.training_step

    def training_step(model, *inputs):
        if not hasattr(trainer, "_napier_tree"):
            if _shards_of(model):
                raise NotImplementedError("model: GRPOTrainer with FSDP; its processes do not have every Nth sequence (use DDP)")
            trainer._napier_tree = SequenceTree(model, batch)
            trainer.accelerator.clip_grad_norm_ = _clip_for(trainer._napier_tree)
        return step(model, *inputs)

    trainer.training_step = training_step
    _keep_order(trainer)
    return trainer


def _clip_for(tree):
    return lambda parameters, max_norm, norm_type=2: tree.clip_grad_norm_(max_norm)


def _keep_order(trainer):
    """Sorts what TRL shuffles: a process's sequences, of which each step of accumulation has one."""
    generate, prepare = trainer._generate_and_score_completions, trainer._prepare_inputs

    def numbered(inputs):
        made = generate(inputs)
        return {**made, "sequence_number": torch.arange(len(made["completion_ids"]))}

    def prepared(inputs):
        before = trainer._buffered_inputs
        made = prepare(inputs)
        if trainer._buffered_inputs is before:
            return made
        trainer._buffered_inputs.sort(key=lambda one: int(one["sequence_number"]))
        return trainer._buffered_inputs[trainer._step % trainer.args.steps_per_generation]

    trainer._generate_and_score_completions, trainer._prepare_inputs = numbered, prepared
