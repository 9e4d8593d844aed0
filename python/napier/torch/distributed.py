"""Napier for a vocabulary that is sharded over a process group: each rank has some columns of the logits, or some rows of the
head's weights, in the order of ranks. Any sizes will do, also 0.

Every rank gets the bits of the same call of napier.torch on the whole rows in one process, forward and backward, for any number
of ranks and any boundaries. Results that have no vocabulary dimension are the same on every rank. In backward the gradient with
respect to such a result must be the same on every rank too, as it is where every rank computes the same loss from it.

All functions are collective: every rank of the group calls them in the same order with the same options, and those with messages in
backward call backward too. The ranks compare their arguments in the first message. So an argument that one rank refuses, or that
differs, is an error on every rank, and the group works afterwards. A rank that ends makes the others raise a RuntimeError; one that
hangs makes them raise it after the group's timeout. Tensors may be DTensors with Shard(-1).

On a GPU the shard is computed on the host for now, and only the messages use the group's device.
"""

import contextlib
import functools
import math
import operator
import zlib

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from .. import SoftmaxState, _napier
from .._torch.base import _common
from .._torch.logsumexp import _weighted_gradients, _weights_like
from ..rl import TokenLogprobs

__all__ = ["cross_entropy", "linear_token_logprobs", "log_softmax", "logsumexp", "softmax", "token_logprobs"]

_TILE = 1024
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_LSE, _ENTROPY, _TOTAL = 3, 4, 5  # napier_shard_values
_SUM, _FINAL = 14, 4  # int64 of a sum and of a final
_DOTS = 3  # floats of a tile for the gradients of softmax and log_softmax
_WORDS = 10  # int64 by which ranks compare their arguments
_TEXT = 512  # bytes of the error of a rank
_NO_IDS = torch.empty(0, dtype=torch.int64)


# ---- Messages ---------------------------------------------------------------------------------------------------------------


class _Group:
    """A process group, the device of its messages, and its errors."""

    def __init__(self, group):
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError("napier.torch.distributed: there is no process group (call torch.distributed.init_process_group)")
        self.group = dist.group.WORLD if group is None else group
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        if self.rank < 0:
            raise ValueError("group: this process is not in it")
        self.device = torch.device("cuda", torch.cuda.current_device()) if "nccl" in dist.get_backend(self.group) else None

    def peer(self, rank):
        return dist.get_global_rank(self.group, rank)

    def _out(self, x):
        return x if self.device is None else x.to(self.device)

    def _failed(self, what, error):
        first = str(error).strip().split("\n")[0]
        return RuntimeError(
            f"napier.torch.distributed: rank {self.rank} of {self.size}: {what} failed: another rank has ended, or "
            f"did not answer in time ({first})"
        )

    def gather(self, x, what):
        """The tensors of all ranks, of one shape and dtype: [ranks, ...]."""
        return self.start_gather(x, what)()

    def start_gather(self, x, what):
        """The same; call the result to wait for it."""
        if self.size == 1 or x.numel() == 0:
            return lambda: x.new_empty((self.size, *x.shape)) if x.numel() == 0 else x.unsqueeze(0)
        sent = self._out(x.contiguous())
        all_ = torch.empty((self.size * sent.numel(),), dtype=sent.dtype, device=sent.device)
        try:
            work = dist.all_gather_into_tensor(all_, sent.view(-1), group=self.group, async_op=True)
        except RuntimeError as error:
            raise self._failed(what, error) from error

        def wait():
            try:
                work.wait()
            except RuntimeError as error:
                raise self._failed(what, error) from error
            return all_.cpu().view(self.size, *x.shape)

        return wait

    @contextlib.contextmanager
    def arguments(self):
        """The checks of this rank's arguments. An error goes to all ranks, in place of the words by which they compare them."""
        try:
            yield
        except Exception as error:
            words = torch.zeros(_WORDS, dtype=torch.int64)
            words[0] = -1
            with contextlib.suppress(RuntimeError):  # another rank has ended; this one's error says more
                self.gather(words, "the exchange of arguments")
                self.gather(_text_of(error), "the exchange of errors")
            raise

    def refuse_if_any_did(self, words):
        """Raises what another rank refuses."""
        failed = [rank for rank, word in enumerate(words) if word[0] < 0]
        if failed:
            texts = self.gather(torch.zeros(_TEXT, dtype=torch.uint8), "the exchange of errors")
            text = bytes(texts[failed[0]].tolist()).rstrip(b"\0").decode(errors="ignore")
            raise ValueError(f"rank {failed[0]} refuses its arguments: {text}")

    def swap(self, sends, receives, what):
        """Sends [(rank, tensor)] and receives [(rank, shape, dtype)], all at once."""
        arrived = [self._out(torch.empty(shape, dtype=dtype)) for _, shape, dtype in receives]
        if not any(x.numel() for x in [*arrived, *(x for _, x in sends)]):
            return arrived
        moves = [dist.P2POp(dist.isend, self._out(x.contiguous()), self.peer(rank), self.group) for rank, x in sends]
        moves += [dist.P2POp(dist.irecv, x, self.peer(rank), self.group) for (rank, *_), x in zip(receives, arrived)]
        try:
            for work in dist.batch_isend_irecv(moves):
                work.wait()
        except RuntimeError as error:
            raise self._failed(what, error) from error
        return [x.cpu() for x in arrived]

    def send(self, x, rank, what):
        """Starts to send; give the result to wait()."""
        x = self._out(x.contiguous())
        try:
            return x, dist.isend(x, self.peer(rank), group=self.group)
        except RuntimeError as error:
            raise self._failed(what, error) from error

    def wait(self, sent, what):
        try:
            for _, work in sent:
                work.wait()
        except RuntimeError as error:
            raise self._failed(what, error) from error

    def broadcast(self, x, rank, what):
        if x.numel() == 0:
            return x
        sent = self._out(x)
        try:
            dist.broadcast(sent, self.peer(rank), group=self.group)
        except RuntimeError as error:
            raise self._failed(what, error) from error
        return sent.cpu()


def _text_of(error):
    text = _public_text(error) or type(error).__name__
    return torch.tensor(list(text.encode()[:_TEXT].ljust(_TEXT, b"\0")), dtype=torch.uint8)


def _public_text(error):
    """Without the name of the function in C."""
    private, _, text = str(error).partition(": ")
    return text if private.startswith("_shard_") else str(error)


# ---- Who has which columns, and who owns which tiles ---------------------------------------------------------------------------


class _Layout:
    """Rank r has columns offsets[r] .. offsets[r + 1] - 1. A tile of 1024 columns that lies in several shards belongs to the rank
    with the most of it (the first of equals); the others send it their part."""

    def __init__(self, sizes, rank):
        self.rank, self.offsets = rank, [0]
        for size in sizes:
            self.offsets.append(self.offsets[-1] + size)
        self.vocabulary = self.offsets[-1]
        self.first, self.end = self.offsets[rank], self.offsets[rank + 1]
        begins = [self._first_tile(r) for r in range(len(sizes))] + [-(-self.vocabulary // _TILE)]
        self.tiles = [end - begin for begin, end in zip(begins, begins[1:])]  # how many each rank owns, in the order of ranks
        self.own = (begins[rank], begins[rank + 1])
        self.sends, self.receives = [], []  # (rank, begin, end) of columns
        for tile in sorted({self.first // _TILE, (self.end - 1) // _TILE}) if self.first < self.end else []:
            parts, owner = self._parts(tile), self._owner(tile)
            if owner == rank:
                self.receives += [part for part in parts if part[0] != rank]
            else:
                self.sends += [(owner, begin, end) for r, begin, end in parts if r == rank]

    def _parts(self, tile):
        begin, end = tile * _TILE, min((tile + 1) * _TILE, self.vocabulary)
        parts = [(r, max(begin, self.offsets[r]), min(end, self.offsets[r + 1])) for r in range(len(self.offsets) - 1)]
        return [part for part in parts if part[1] < part[2]]

    def _owner(self, tile):
        return max(self._parts(tile), key=lambda part: (part[2] - part[1], -part[0]))[0]

    def _first_tile(self, r):
        tile, inside = divmod(self.offsets[r], _TILE)
        return tile if inside == 0 or self.offsets[r] < self.vocabulary and self._owner(tile) >= r else tile + 1

    def edges(self):
        """The tiles of this rank that others have parts of, and the columns between them."""
        begin, end = self.own[0] * _TILE, min(self.own[1] * _TILE, self.vocabulary)
        if begin >= end:
            return [], (self.first, self.first)
        inner = (
            min(-(-max(self.first, begin) // _TILE) * _TILE, end),
            self.end if self.end == self.vocabulary else self.end // _TILE * _TILE,
        )
        inner = (inner[0], max(inner[0], min(inner[1], end)))
        tiles = [t for t in range(*self.own) if not inner[0] <= t * _TILE < inner[1]]
        return tiles, inner


@functools.lru_cache(maxsize=64)
def _layout_of(sizes, rank):
    return _Layout(sizes, rank)


def _sizes(sizes, group, cols):
    """The columns of each rank, as a tuple, or None."""
    if sizes is None:
        return None
    try:
        sizes = tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise TypeError(f"sizes: expected a list of integers, got {sizes!r}") from None
    if len(sizes) != group.size or min(sizes) < 0:
        raise ValueError(f"sizes: expected the columns of each of {group.size} ranks, got {list(sizes)}")
    if sizes[group.rank] != cols:
        raise ValueError(f"sizes: rank {group.rank} has {cols} columns, not {sizes[group.rank]}")
    return sizes


class _Agreement:
    """The layout, and the comparison of the ranks' arguments, which settle() waits for. Before it no rank may send anything else."""

    def __init__(self, layout, settle):
        self.layout, self.settle = layout, settle

    @contextlib.contextmanager
    def settled_behind(self):
        """Work of this rank alone, which hides the wait. If it fails, the other ranks' errors come first."""
        try:
            yield
        finally:
            self.settle()


def _agree(group, sizes, cols, options, ids=_NO_IDS, **values):
    """The ranks exchange their columns, and everything else that must be equal: options by name, with the function, ids, and integers
    or dtypes. Each rank sends as many words, also when the ranks call different functions. If sizes are given, nothing waits yet."""
    code = zlib.crc32(repr(options).encode())
    numbers = [_DTYPES.index(x) if isinstance(x, torch.dtype) else x for x in values.values()]
    mine = torch.zeros(_WORDS, dtype=torch.int64)
    mine[: 4 + len(numbers)] = torch.tensor([cols, code, *numbers, ids.numel(), zlib.crc32(ids.numpy())])
    mine[-1] = _code_of_sizes(sizes)
    gathered = group.start_gather(mine, "the exchange of arguments")

    @functools.lru_cache(maxsize=None)
    def settle():
        rows = gathered().tolist()
        group.refuse_if_any_did(rows)
        _compare(rows, values, options)
        return tuple(row[0] for row in rows)

    return _Agreement(_layout_of(settle() if sizes is None else sizes, group.rank), settle)


def _code_of_sizes(sizes):
    return 0 if sizes is None else 1 + zlib.crc32(repr(tuple(sizes)).encode())


def _compare(rows, values, options):
    """Raises on every rank if the words of two ranks differ. rows[r]: columns, options, values, number of ids, ids."""
    others = [r for r, row in enumerate(rows) if row[1] != rows[0][1]]
    if others:
        mine = ", ".join(f"{name}={value!r}" for name, value in options.items() if name != "function")
        raise ValueError(f"options: rank {others[0]} has others than rank 0; this rank calls {options['function']} with {mine}")
    named = [*values, "ids"]
    for i, name in enumerate(named, 2):
        for r, row in enumerate(rows):
            if row[i] != rows[0][i]:
                has = [_DTYPES[x] if isinstance(values.get(name), torch.dtype) else x for x in (row[i], rows[0][i])]
                raise ValueError(f"{name}: rank {r} has {has[0]}, rank 0 has {has[1]}")
    last = 2 + len(named)
    others = [str(r) for r, row in enumerate(rows) if row[last] != rows[0][last]]
    if others:
        raise ValueError(
            f"ids: {'rank' if len(others) == 1 else 'ranks'} {', '.join(others)} and rank 0 differ in their ids, "
            "which must be the same on every rank"
        )
    cols = [row[0] for row in rows]
    for r, row in enumerate(rows):
        if row[-1] not in (0, _code_of_sizes(cols)):
            raise ValueError(f"sizes: those of rank {r} are not the columns of the ranks, {cols}")


# ---- The parts of an operation ----------------------------------------------------------------------------------------------------


def _whole_tiles(group, layout, x, what):
    """[(first column, the tile)] for the tiles of this rank that others have parts of, and the columns between them. x has this rank's
    columns."""
    received = group.swap(
        [(r, x[:, begin - layout.first : end - layout.first]) for r, begin, end in layout.sends],
        [(r, (x.shape[0], end - begin), x.dtype) for r, begin, end in layout.receives],
        what,
    )
    parts = sorted(
        [(begin, end, y) for (_, begin, end), y in zip(layout.receives, received)] + [(layout.first, layout.end, x)],
        key=lambda part: part[:2],
    )
    tiles, inner = layout.edges()
    edges = []
    for tile in tiles:
        begin, end = tile * _TILE, min((tile + 1) * _TILE, layout.vocabulary)
        edges.append((begin, torch.cat([y[:, max(begin, b) - b : min(end, e) - b] for b, e, y in parts if b < end and e > begin], 1)))
    return edges, inner


def _at(layout, values, tiles, first, cols):
    """The floats of the tiles that these columns consist of."""
    begin = first // _TILE - layout.own[0]
    return tiles[:, begin * values : (begin - (-cols // _TILE)) * values]


def _gather_tiles(group, layout, values, own, extra, what):
    """The floats of all tiles in order, and `extra` of every rank [ranks, ...]; own: those of this rank."""
    rows, most = own.shape[0], max(layout.tiles) * values
    sent = torch.zeros((rows, most + extra.shape[1]), dtype=torch.float32)
    sent[:, : own.shape[1]] = own
    sent[:, most:] = extra
    all_ = group.gather(sent, what)
    tiles = torch.cat([all_[r, :, : n * values] for r, n in enumerate(layout.tiles)], 1)
    return tiles, all_[:, :, most:]


def _finish(group, layout, values, own, chosen):
    """The finals of all rows, and the z of their ids, from this rank's tiles and z."""
    rows = own.shape[0]
    finals = torch.empty((rows, _FINAL), dtype=torch.int64)
    what = "the exchange of states"
    if values == _LSE:
        sums = torch.empty((rows, _SUM), dtype=torch.int64)
        _napier._shard_sums(own, values, sums)
        sent = torch.cat([sums.view(-1).view(torch.uint8), chosen.view(-1).view(torch.uint8)])
        all_ = group.gather(sent, what)
        sums = all_[:, : rows * _SUM * 8].flatten().view(torch.int64)
        _napier._shard_finish_sums(sums, group.size, rows, finals)
        chosen = all_[:, rows * _SUM * 8 :].flatten().view(torch.float32).view(group.size, *chosen.shape)
    else:
        tiles, chosen = _gather_tiles(group, layout, values, own, chosen, what)
        _napier._shard_finish_tiles(tiles, values, finals)
    return finals, chosen.amin(0).contiguous()


def _room(group, layout, rows, ids, options, values):
    """The floats of this rank's tiles, and the z of ids. Every rank refuses wrong options and ids here, before any message."""
    chosen = torch.full((rows, ids.numel() // rows if rows else 0), math.inf)
    _napier._shard_tiles(torch.empty((rows, 0)), 0, layout.vocabulary, ids, *options, values, torch.empty((rows, 0)), chosen)
    return torch.empty((rows, layout.tiles[group.rank] * values)), chosen


def _reduce(group, agreement, x, ids, options, values):
    """_finish for logits x [N, cols]."""
    layout = agreement.layout

    def add(first, y):
        _napier._shard_tiles(y, first, layout.vocabulary, ids, *options, values, _at(layout, values, own, first, y.shape[1]), chosen)

    with agreement.settled_behind():
        own, chosen = _room(group, layout, x.shape[0], ids, options, values)
        _, (begin, end) = layout.edges()
        if end > begin:
            add(begin, x[:, begin - layout.first : end - layout.first])
    for first, y in _whole_tiles(group, layout, x, "the exchange of logits at boundaries")[0]:
        add(first, y)
    return _finish(group, layout, values, own, chosen)


def _reduce_linear(group, agreement, hidden, weights, ids, options, values):
    """_finish for logits hidden @ weights.T, of which only those of shared tiles are stored."""
    rows, layout = hidden.shape[0], agreement.layout
    with agreement.settled_behind():
        own, chosen = _room(group, layout, rows, ids, options, values)
        tiles, (begin, end) = layout.edges()
        if end > begin:
            _napier._shard_linear_tiles(
                hidden,
                weights[begin - layout.first : end - layout.first],
                begin,
                layout.vocabulary,
                ids,
                *options,
                values,
                _at(layout, values, own, begin, end - begin),
                chosen,
            )
    shared = [(begin, end) for _, begin, end in layout.sends]
    shared += [(max(t * _TILE, layout.first), min((t + 1) * _TILE, layout.end)) for t in tiles]
    x = torch.empty((rows, weights.shape[0]), device="meta") if not shared else _SomeLogits(hidden, weights, layout.first, shared)
    for first, y in _whole_tiles(group, layout, x, "the exchange of logits at boundaries")[0]:
        _napier._shard_tiles(y, first, layout.vocabulary, ids, *options, values, _at(layout, values, own, first, y.shape[1]), chosen)
    return _finish(group, layout, values, own, chosen)


class _SomeLogits:
    """Stands for the shard's logits, of which only some columns are computed."""

    def __init__(self, hidden, weights, first, columns):
        self.shape, self.dtype, self.hidden = (hidden.shape[0], weights.shape[0]), torch.float32, hidden
        self.parts = {
            begin - first: _napier.matmul(hidden, weights[begin - first : end - first].T, dtype=torch.float32)
            for begin, end in columns
            if begin < end
        }

    def __getitem__(self, key):
        begin, end = key[1].start, key[1].stop
        for at, y in self.parts.items():
            if at <= begin and end <= at + y.shape[1]:
                return y[:, begin - at : end - at]
        raise AssertionError("columns that were not computed")


# ---- Arguments ----------------------------------------------------------------------------------------------------------------------


def _floats(name, x, ndim=1):
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(x).__name__}")
    if x.dtype not in _DTYPES:
        raise TypeError(f"{name}: {x.dtype} is not supported across ranks (use .float())")
    if x.ndim < ndim:
        raise ValueError(f"{name}: expected at least 1 dimension")
    return x


def _host(x):
    return x.detach().cpu()


def _ids_of(ids, lead, rows):
    """ids as int64 on the host, and the shape of the results."""
    if ids is None:
        return torch.empty(0, dtype=torch.int64), None
    ids = torch.as_tensor(ids)
    if ids.dtype.is_floating_point or ids.dtype == torch.bool or ids.is_complex():
        raise TypeError(f"ids: expected integers, got {ids.dtype}")
    if tuple(ids.shape[: len(lead)]) != lead or ids.ndim > len(lead) + 1:
        raise ValueError(f"ids: shape {tuple(ids.shape)} does not begin with the leading dimensions {lead}")
    return _host(ids).long().contiguous().view(-1), tuple(ids.shape)


class _Sharded:
    """A tensor whose last dimension is sharded: a plain one of this rank, or a DTensor."""

    def __init__(self, name, x, group, sizes, dim=-1):
        self.mesh = None
        if hasattr(x, "device_mesh"):
            from torch.distributed.tensor import Shard

            sharded = [i for i, p in enumerate(x.placements) if p.is_shard() and p.dim % x.ndim == dim % x.ndim]
            others = [p for i, p in enumerate(x.placements) if i not in sharded]
            if len(sharded) != 1 or type(x.placements[sharded[0]]) is not Shard or any(p.is_partial() for p in others):
                raise ValueError(f"{name}: expected a DTensor with Shard({dim}) on one dimension of its mesh, got {x.placements}")
            if group is not None:
                raise ValueError("group: a DTensor brings its own")
            self.mesh, self.placements, self.at, self.shape = x.device_mesh, x.placements, sharded[0], tuple(x.shape)
            group = self.mesh.get_group(self.at)
            each, total, ranks = -(-x.shape[dim] // self.mesh.size(self.at)), x.shape[dim], self.mesh.size(self.at)
            sizes = [max(0, min(each, total - r * each)) for r in range(ranks)]
            x = x.to_local()
        self.local, self.group, self.sizes = x, _Group(group), sizes

    def like(self, y):
        """A result of the same shape."""
        return y if self.mesh is None else self._wrap(y, self.placements, self.shape)

    def whole(self, y, more=()):
        """A result without the sharded dimension: equal on all ranks; with dimensions of its own at the end."""
        if y is None or self.mesh is None:
            return y
        from torch.distributed.tensor import Replicate

        placements = [Replicate() if i == self.at else p for i, p in enumerate(self.placements)]
        return self._wrap(y, placements, self.shape[:-1] + tuple(more))

    def _wrap(self, y, placements, shape):
        from torch.distributed.tensor import DTensor

        stride = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        return DTensor.from_local(y, self.mesh, placements, run_check=False, shape=torch.Size(shape), stride=tuple(stride))


def _local(x):
    return x.to_local() if hasattr(x, "device_mesh") else x


def _number(name, x):
    try:
        if not isinstance(x, (str, bytes)):
            return float(x)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{name}: expected a number, got {x!r}")


def _options(temperature, softcap=0.0, ignore_index=-100, label_smoothing=0.0, z_loss=0.0):
    try:
        ignore_index = operator.index(ignore_index)
    except TypeError:
        raise TypeError(f"ignore_index: expected an integer, got {ignore_index!r}") from None
    return (
        _number("temperature", temperature),
        _number("softcap", softcap),
        ignore_index,
        _number("label_smoothing", label_smoothing),
        _number("z_loss", z_loss),
    )


def _token_options(function, options, want, **more):
    """As _agree takes them."""
    names = ("temperature", "softcap", "ignore_index", "label_smoothing", "z_loss")
    return dict(zip(names, options), function=function, **{name: name in want for name in ("lse", "entropy", "loss")}, **more)


def _public(function):
    """Errors of the functions in C have the name of the public one."""

    @functools.wraps(function)
    def call(*arguments, **options):
        try:
            return function(*arguments, **options)
        except Exception as error:
            text = _public_text(error)
            if text == str(error):
                raise
            raise type(error)(f"napier.torch.distributed.{function.__name__}: {text}") from None

    return call


# ---- softmax, log_softmax, logsumexp --------------------------------------------------------------------------------------------------


class _Map(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, kind, group, agreement, temperature, masked_rows):
        x = _host(rows)
        finals, _ = _reduce(group, agreement, x, _NO_IDS, _options(temperature), _LSE)
        y = torch.empty(x.shape, dtype=x.dtype)
        _napier._shard_softmax(finals, kind, x, y, temperature, masked_rows)
        y = y.to(rows.device)
        ctx.save_for_backward(y)
        ctx.kind, ctx.group, ctx.layout, ctx.temperature = kind, group, agreement.layout, temperature
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (result,), group, layout = ctx.saved_tensors, ctx.group, ctx.layout
        y, g = _host(result), _host(grad.to(result.dtype)).contiguous()
        own = torch.empty((y.shape[0], layout.tiles[group.rank] * _DOTS))
        inputs = [g] if ctx.kind == "log_softmax" else [g, y]
        both = [_whole_tiles(group, layout, x, "the exchange of gradients at boundaries") for x in inputs]
        for i, (first, _) in enumerate(both[0][0]):
            tiles = [edges[i][1] for edges, _ in both]
            _napier._shard_dots(tiles[0], _at(layout, _DOTS, own, first, tiles[0].shape[1]), *tiles[1:])
        begin, end = both[0][1]
        if end > begin:
            inner = [x[:, begin - layout.first : end - layout.first] for x in inputs]
            _napier._shard_dots(inner[0], _at(layout, _DOTS, own, begin, end - begin), *inner[1:])
        dots, _ = _gather_tiles(group, layout, _DOTS, own, own[:, :0], "the exchange of sums")
        out = torch.empty(y.shape, dtype=y.dtype)
        _napier._shard_softmax_backward(ctx.kind, y, g, dots, out, ctx.temperature)
        return out.to(result.device), None, None, None, None, None


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, group, agreement, temperature):
        x = _host(rows)
        finals, chosen = _reduce(group, agreement, x, _NO_IDS, _options(temperature), _LSE)
        lse = torch.empty(x.shape[0], dtype=x.dtype)
        _napier._shard_token_results(x.shape[0], finals, agreement.layout.vocabulary, lse=lse)
        ctx.save_for_backward(rows, finals)
        ctx.temperature = temperature
        return lse.to(rows.device)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        rows, finals = ctx.saved_tensors
        x = _host(rows)
        out = torch.empty(x.shape, dtype=x.dtype)
        _napier._shard_logsumexp_backward(finals, x, _host(grad.to(x.dtype)).contiguous(), out, ctx.temperature)
        return out.to(rows.device), None, None, None


class _WeightedLogSumExp(torch.autograd.Function):
    """The ranks exchange a state of each row, which has the elements of shared tiles in it."""

    @staticmethod
    def forward(ctx, rows, b, group, agreement, temperature):
        x, w = _host(rows), _host(b)
        with agreement.settled_behind():
            states = _weighted_states(x, w, agreement.layout.first, "float32", temperature)
        found = _merge_weighted(group, agreement.layout, states, torch.float32)
        # sign exp(lse) has this logsumexp and sign, rounded to the results' dtype
        lse, sign = _napier._logsumexp_weighted(found[:, :1], found[:, 1:], -1, False, dtype=_common(x.dtype, w.dtype))
        ctx.save_for_backward(rows, b)
        ctx.group, ctx.layout, ctx.temperature = group, agreement.layout, temperature
        ctx.mark_non_differentiable(sign)
        return lse.to(rows.device), sign.to(rows.device)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):
        rows, b = ctx.saved_tensors
        x, w, group = _host(rows), _host(b), ctx.group

        def whole_max(z):
            each = z.amax(-1) if z.shape[1] else z.new_full(z.shape[:1], -torch.inf)
            return group.gather(each, "the exchange of maxima").amax(0)

        def whole_lse(z, weights):
            found = _merge_weighted(group, ctx.layout, _weighted_states(z, weights, ctx.layout.first, "float64", 1.0), torch.float64)
            return found[:, 0], found[:, 1]

        to_x, to_b = _weighted_gradients(x, w, _host(grad), ctx.temperature, whole_max, whole_lse)
        return to_x.to(rows.device), to_b.to(b.device), None, None, None


def _weighted_states(x, b, first, compute, temperature):
    """The state of each row, as bytes of one size."""
    return [SoftmaxState(compute, first, temperature=temperature, weighted=True).update(z, w).to_bytes() for z, w in zip(x, b)]


def _merge_weighted(group, layout, states, dtype):
    """(lse, sign) of each row, [N, 2], from this rank's states."""
    element = 4 if dtype is torch.float32 else 8
    empty = len(SoftmaxState(str(dtype)[6:], weighted=True).to_bytes())
    sizes = []
    for begin, end in zip(layout.offsets, layout.offsets[1:]):
        before = -begin % _TILE
        kept = end - begin if end - begin <= before else before + (end - begin - before) % _TILE
        sizes.append(empty + 2 * element * kept)
    widest = max(sizes)
    sent = torch.frombuffer(bytearray(b"".join(state.ljust(widest, b"\0") for state in states)) or bytearray(1), dtype=torch.uint8)
    all_ = group.gather(sent[: len(states) * widest].view(len(states), widest), "the exchange of states")
    found = torch.empty((len(states), 2), dtype=dtype)
    for row in range(len(states)):
        whole = SoftmaxState.from_bytes(all_[0, row, : sizes[0]].numpy())
        for rank in range(1, group.size):
            whole.merge(SoftmaxState.from_bytes(all_[rank, row, : sizes[rank]].numpy()))
        found[row] = torch.tensor(whole.finish(return_sign=True), dtype=torch.float64)
    return found


def _rows(x):
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _map(kind, x, group, sizes, temperature, masked_rows):
    s = _Sharded("x", x, group, sizes)
    with s.group.arguments():
        x = _floats("x", s.local)
        rows, temperature, sizes = _rows(x), _number("temperature", temperature), _sizes(s.sizes, s.group, x.shape[-1])
    agreement = _agree(
        s.group,
        sizes,
        x.shape[-1],
        dict(function=kind, temperature=temperature, masked_rows=masked_rows),
        rows=rows.shape[0],
        dtype=x.dtype,
    )
    if rows.requires_grad and torch.is_grad_enabled():
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))  # a gradient from 16 bits would be wrong by percents
    y = _Map.apply(rows, kind, s.group, agreement, temperature, masked_rows).to(x.dtype)
    return s.like(y.view(x.shape))


@_public
def softmax(x, group=None, *, sizes=None, temperature=1.0, masked_rows="nan"):
    """napier.torch.softmax over the last dimension, of which each rank has some columns.

    sizes: how many columns each rank has. Without it the ranks wait for each other's before they begin. group: default: all
    processes; a DTensor brings its own.

    Examples
    --------
    >>> import torch, napier.torch.distributed
    >>> store = torch.distributed.HashStore()  # one process, as rank 0 of 1, in place of torchrun's many
    >>> torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    >>> napier.torch.distributed.softmax(torch.tensor([[0.0, 0.0]])).tolist()  # this rank's columns
    [[0.5, 0.5]]
    >>> torch.distributed.destroy_process_group()
    """
    return _map("softmax", x, group, sizes, temperature, masked_rows)


@_public
def log_softmax(x, group=None, *, sizes=None, temperature=1.0, masked_rows="nan"):
    """napier.torch.log_softmax over the last dimension, of which each rank has some columns.

    Examples
    --------
    >>> import torch, napier.torch.distributed
    >>> torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    >>> shard = torch.zeros(1, 2, requires_grad=True)
    >>> napier.torch.distributed.log_softmax(shard)[0, 1].backward()
    >>> shard.grad.tolist()
    [[-0.5, 0.5]]
    >>> torch.distributed.destroy_process_group()
    """
    return _map("log_softmax", x, group, sizes, temperature, masked_rows)


@_public
def logsumexp(x, group=None, *, b=None, return_sign=False, sizes=None, temperature=1.0):
    """napier.torch.logsumexp over the last dimension, of which each rank has some columns. b: weights of any sign that broadcast to this
    rank's x. Backward has no messages without weights, and two with them.

    Examples
    --------
    >>> import torch, napier.torch.distributed
    >>> torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    >>> lse = napier.torch.distributed.logsumexp(torch.tensor([[1000.0, 1001.0, 1002.0]]), sizes=[3])
    >>> round(lse.item(), 4)
    1002.4076
    >>> torch.distributed.destroy_process_group()
    """
    s = _Sharded("x", x, group, sizes)
    with s.group.arguments():
        x = _floats("x", s.local)
        rows, temperature, sizes = _rows(x), _number("temperature", temperature), _sizes(s.sizes, s.group, x.shape[-1])
        weighted = b is not None or bool(return_sign)
        if weighted:
            b = _floats("b", _weights_like(1.0 if b is None else _local(b), x), 0)
            if not _broadcasts(b.shape, x.shape):
                raise ValueError(f"b: shape {tuple(b.shape)} does not broadcast to this rank's x, {tuple(x.shape)}")
    options = dict(function="logsumexp", temperature=temperature, weighted=weighted)
    agreement = _agree(s.group, sizes, x.shape[-1], options, rows=rows.shape[0], dtype=x.dtype, dtype_of_b=b.dtype if weighted else x.dtype)
    if not weighted:
        return s.whole(_LogSumExp.apply(rows, s.group, agreement, temperature).view(x.shape[:-1]))
    lse, sign = _WeightedLogSumExp.apply(rows, _rows(b.expand(x.shape)), s.group, agreement, temperature)
    lse = lse if return_sign else lse * torch.where(sign < 0, torch.nan, 1.0).to(lse.dtype)
    lse, sign = (s.whole(y.view(x.shape[:-1])) for y in (lse, sign))
    return (lse, sign) if return_sign else lse


def _broadcasts(shape, to):
    return len(shape) <= len(to) and all(m in (1, n) for m, n in zip(reversed(shape), reversed(to)))


# ---- Tokens ---------------------------------------------------------------------------------------------------------------------


def _results(finals, chosen, rows, vocabulary, ids, options, want):
    """(logprobs, lse, entropy, loss); empty where not wanted."""

    def room(wanted, *shape):
        return torch.empty(shape if wanted else (0,), dtype=torch.float32)

    made = (room(ids.numel(), rows, chosen.shape[1]), room("lse" in want, rows), room("entropy" in want, rows), room("loss" in want, rows))
    given = [x if x.numel() else None for x in made]
    if rows:
        _napier._shard_token_results(rows, finals, vocabulary, chosen, ids, *options, *given)
    return made


def _gradients(grads, ids, rows):
    """Gradients as C takes them: float32, or None."""
    g = [None if x is None or not x.numel() else _host(x).float().contiguous() for x in grads]
    if g[0] is not None and ids.numel() == 0:
        g[0] = None
    return g


def _values(want, options):
    return _TOTAL if "loss" in want and options[3] > 0.0 else _ENTROPY if "entropy" in want else _LSE


class _Tokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, ids, group, agreement, options, want):
        x = _host(rows)
        finals, chosen = _reduce(group, agreement, x, ids, options, _values(want, options))
        ctx.save_for_backward(rows, ids, finals, chosen)
        ctx.layout, ctx.options = agreement.layout, options
        ctx.set_materialize_grads(False)
        made = _results(finals, chosen, x.shape[0], agreement.layout.vocabulary, ids, options, want)
        return tuple(y.to(rows.device) for y in made)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        rows, ids, finals, chosen = ctx.saved_tensors
        x, layout = _host(rows), ctx.layout
        out = torch.empty(x.shape, dtype=x.dtype)
        if x.shape[0]:
            _napier._shard_token_backward(
                finals, x, layout.first, layout.vocabulary, out, chosen, ids, *ctx.options, *_gradients(grads, ids, x.shape[0])
            )
        return out.to(rows.device), None, None, None, None, None


class _LinearTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weights, ids, group, agreement, options, want):
        x, w = _host(hidden), _host(weights)
        finals, chosen = _reduce_linear(group, agreement, x, w, ids, options, _values(want, options))
        ctx.save_for_backward(hidden, weights, ids, finals, chosen)
        ctx.group, ctx.layout, ctx.options = group, agreement.layout, options
        ctx.set_materialize_grads(False)
        made = _results(finals, chosen, x.shape[0], agreement.layout.vocabulary, ids, options, want)
        return tuple(y.to(hidden.device) for y in made)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        hidden, weights, ids, finals, chosen = ctx.saved_tensors
        x, w = _host(hidden), _host(weights)
        g = _gradients(grads, ids, x.shape[0])
        call = functools.partial(_linear_backward, ctx.layout, ctx.options, w)
        made = torch.empty if x.shape[0] else torch.zeros
        to_x, to_w = None, made(w.shape, dtype=w.dtype) if ctx.needs_input_grad[1] else None
        if ctx.group.size == 1:
            to_x = torch.empty(x.shape) if ctx.needs_input_grad[0] else None
            if to_x is not None or to_w is not None:
                call(slice(None), finals, x, chosen, ids, g, False, to_x, to_w)
        else:
            if ctx.needs_input_grad[0]:
                to_x = _chain(ctx.group, call, x, (finals, chosen, ids, g))
            if to_w is not None:
                call(slice(None), finals, x, chosen, ids, g, False, None, to_w)
            if to_x is not None:
                to_x = ctx.group.broadcast(to_x.to(x.dtype), ctx.group.size - 1, "the broadcast of grad_hidden")
        return (
            None if to_x is None else to_x.to(x.dtype).to(hidden.device),
            None if to_w is None else to_w.to(weights.device),
            None,
            None,
            None,
            None,
            None,
        )


def _linear_backward(layout, options, weights, some, finals, hidden, chosen, ids, gradients, continues, to_hidden, to_weights):
    """The gradients of some rows."""
    if not finals.shape[0]:
        return
    each = ids.numel() // finals.shape[0]
    own = ids.view(finals.shape[0], each)[some].reshape(-1)
    _napier._shard_linear_backward(
        finals[some],
        hidden[some],
        weights,
        layout.first,
        layout.vocabulary,
        continues,
        to_hidden,
        to_weights,
        chosen[some].contiguous(),
        own,
        *options,
        *(None if g is None else g[some] for g in gradients),
    )


def _chain(group, call, hidden, rest):
    """grad_hidden is one chain of additions over the vocabulary. So a rank continues the sums of the rank before it; while it does,
    that rank computes the next rows."""
    finals, chosen, ids, g = rest
    rows = hidden.shape[0]
    step = max(16, -(-rows // (4 * group.size)))
    sums, waiting = torch.empty(hidden.shape), []
    what = "the chain of grad_hidden"
    for row in range(0, rows, step):
        some = slice(row, min(row + step, rows))
        if group.rank > 0:
            sums[some] = group.swap([], [(group.rank - 1, tuple(sums[some].shape), sums.dtype)], what)[0]
        call(some, finals, hidden, chosen, ids, g, group.rank > 0, sums[some], None)
        if group.rank + 1 < group.size:
            waiting.append(group.send(sums[some], group.rank + 1, what))
    group.wait(waiting, what)
    return sums


def _shape_results(s, results, lead, each, ids, want):
    wanted = dict(zip(("logprobs", "lse", "entropy", "loss"), results))
    logprobs = s.whole(wanted["logprobs"].view(each), each[len(lead) :]) if ids.numel() or each is not None else None
    return TokenLogprobs(logprobs, *(s.whole(wanted[name].view(lead)) if name in want else None for name in ("lse", "entropy", "loss")))


def _wanted(lse, entropy, loss):
    return tuple(name for name, wanted in (("lse", lse), ("entropy", entropy), ("loss", loss)) if wanted)


@_public
def token_logprobs(
    logits,
    ids=None,
    group=None,
    *,
    sizes=None,
    temperature=1.0,
    softcap=0.0,
    ignore_index=-100,
    label_smoothing=0.0,
    z_loss=0.0,
    lse=False,
    entropy=False,
    loss=False,
) -> TokenLogprobs:
    """napier.torch.token_logprobs of logits [..., V] of which each rank has some columns. ids [...] or [..., K] are those of the whole
    vocabulary, the same on every rank. argmax, rank, top_k and keep are not supported. Backward has no messages.

    Examples
    --------
    >>> import torch, napier.torch.distributed
    >>> torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    >>> t = napier.torch.distributed.token_logprobs(torch.zeros(2, 4), torch.tensor([3, 0]), entropy=True)
    >>> [round(x, 4) for x in t.logprobs.tolist()]
    [-1.3863, -1.3863]
    >>> torch.distributed.destroy_process_group()
    """
    s = _Sharded("logits", logits, group, sizes)
    with s.group.arguments():
        options, want = _options(temperature, softcap, ignore_index, label_smoothing, z_loss), _wanted(lse, entropy, loss)
    return _tokens("token_logprobs", s, ids, options, want)


def _tokens(function, s, ids, options, want, **more):
    """token_logprobs of a shard. more: options of the function itself, which must be equal too."""
    with s.group.arguments():
        x = _floats("logits", s.local)
        lead, rows = tuple(x.shape[:-1]), _rows(x)
        ids, each = _ids_of(None if ids is None else _local(ids), lead, rows.shape[0])
        sizes = _sizes(s.sizes, s.group, x.shape[-1])
    agreement = _agree(s.group, sizes, x.shape[-1], _token_options(function, options, want, **more), ids, rows=rows.shape[0], dtype=x.dtype)
    results = _Tokens.apply(rows, ids, s.group, agreement, options, want)
    return _shape_results(s, results, lead, each, ids, want)


@_public
def linear_token_logprobs(
    hidden,
    weights,
    ids=None,
    group=None,
    *,
    sizes=None,
    temperature=1.0,
    softcap=0.0,
    ignore_index=-100,
    label_smoothing=0.0,
    z_loss=0.0,
    lse=False,
    entropy=False,
    loss=False,
) -> TokenLogprobs:
    """napier.torch.linear_token_logprobs of hidden [..., H], the same on every rank, and the head's weights [V, H] of which each rank
    has some rows. In backward each rank gets the whole gradient of hidden, and that of its own weights.

    Examples
    --------
    >>> import torch, napier.torch.distributed
    >>> torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    >>> hidden, weights = torch.ones(2, 8), torch.zeros(4, 8, requires_grad=True)  # this rank's rows of the head
    >>> t = napier.torch.distributed.linear_token_logprobs(hidden, weights, torch.tensor([3, 0]))
    >>> t.logprobs.sum().backward()
    >>> weights.grad[:, 0].tolist()
    [0.5, -0.5, -0.5, 0.5]
    >>> torch.distributed.destroy_process_group()
    """
    s = _Sharded("weights", weights, group, sizes, dim=0)
    with s.group.arguments():
        w, x = _floats("weights", s.local), _floats("hidden", _local(hidden))
        if w.ndim != 2 or x.shape[-1] != w.shape[1]:
            raise ValueError(f"weights: shape {tuple(w.shape)} is not [V, {x.shape[-1]}]")
        lead, rows = tuple(x.shape[:-1]), _rows(x)
        ids, each = _ids_of(None if ids is None else _local(ids), lead, rows.shape[0])
        options, want = _options(temperature, softcap, ignore_index, label_smoothing, z_loss), _wanted(lse, entropy, loss)
        sizes = _sizes(s.sizes, s.group, w.shape[0])
    agreement = _agree(
        s.group,
        sizes,
        w.shape[0],
        _token_options("linear_token_logprobs", options, want),
        ids,
        rows=rows.shape[0],
        hidden=x.shape[-1],
        dtype=x.dtype,
        weights_dtype=w.dtype,
        hidden_requires_grad=int(x.requires_grad),
    )
    results = _LinearTokens.apply(rows, w, ids, s.group, agreement, options, want)
    s.mesh = None  # the results are plain tensors, as hidden is
    return _shape_results(s, results, lead, each, ids, want)


class _ExactSum(torch.autograd.Function):
    """The sum of all elements, rounded once. So it has no order."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        total = math.fsum(x.double().flatten().tolist()) if bool(torch.isfinite(x).all()) else x.sum().item()
        return torch.tensor(total, dtype=x.dtype, device=x.device)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return grad.expand(ctx.shape)


def _refuse_sharded_rows(logits, reduction):
    if reduction == "none" or not hasattr(logits, "device_mesh"):
        return
    if any(p.is_shard() and p.dim % logits.ndim != logits.ndim - 1 for p in logits.placements):
        raise ValueError(
            f"reduction: {reduction!r} of a DTensor whose rows are sharded too, {logits.placements}, would be that of this "
            "rank's rows (use reduction='none', and reduce that)"
        )


@_public
def cross_entropy(
    logits,
    ids,
    group=None,
    *,
    sizes=None,
    reduction="mean",
    ignore_index=-100,
    label_smoothing=0.0,
    z_loss=0.0,
    temperature=1.0,
    softcap=0.0,
):
    """The loss of token_logprobs for ids [...]. reduction: "none" gives [...]; "sum"; "mean": the sum divided by the number of ids that
    are not ignore_index. The sum is exact, and rounded once. A DTensor whose rows are sharded too needs "none".

    Examples
    --------
    >>> import torch, napier.torch.distributed
    >>> torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    >>> loss = napier.torch.distributed.cross_entropy(torch.zeros(2, 4), torch.tensor([3, -100]))
    >>> round(loss.item(), 4)
    1.3863
    >>> torch.distributed.destroy_process_group()
    """
    s = _Sharded("logits", logits, group, sizes)
    with s.group.arguments():
        if reduction not in ("none", "sum", "mean"):
            raise ValueError(f"reduction: {reduction!r} is not one of none, sum, mean")
        _refuse_sharded_rows(logits, reduction)
        options = _options(temperature, softcap, ignore_index, label_smoothing, z_loss)
    loss = _tokens("cross_entropy", s, ids, options, ("loss",), reduction=reduction).loss
    if reduction == "none":
        return loss
    total = _ExactSum.apply(_local(loss))
    return total if reduction == "sum" else total / int((torch.as_tensor(_local(ids)) != options[2]).sum())
