"""The tokens of a padded batch as sequences for napier.torch.attention, and as one packed row.

Segments [batch, 1, 1, keys] say which sequence of its row a key belongs to: 1, 2, ..., and 0 for padding. The queries are the
last keys. Segments [1, 3, 1, keys] also say which keys precede a sequence's own: begin .. end, which sequences may share. They
are four-dimensional because transformers passes a mask of four dimensions to attention as it is."""

import math

import torch
from torch import nn

WORTH_SHARING = 8  # tokens that sequences have in common


class Sequences:
    """What attention needs: offsets of the sequences, their shared keys, and the indices of their tokens, None for all tokens
    in their order."""

    def __init__(self, mask, queries):
        segments, keys = mask[:, 0, 0], mask.shape[3]
        code = segments + torch.arange(len(segments)).unsqueeze(1) * (keys + 1)
        there = segments > 0
        asked = there.clone()
        asked[:, : keys - queries] = False
        _, sequence, counts = code[there].unique_consecutive(return_inverse=True, return_counts=True)
        self.key_offsets = _offsets(counts)
        self.query_offsets = _offsets(torch.bincount(sequence[asked[there]], minlength=len(counts)))
        self.keys = _indices(there)
        self.queries = _indices(asked[:, keys - queries :])
        self.prefix = None if mask.shape[1] == 1 else tuple(mask[0, 1:, 0, self.key_offsets[:-1]])


def sequences_of(segments, queries):
    """The sequences, computed once for all layers: they are an attribute of the tensor."""
    known = getattr(segments, "_napier", None)
    if known is None or known[0] != queries:
        known = segments._napier = queries, Sequences(segments, queries)
    return known[1]


def _offsets(counts):
    return nn.functional.pad(counts.cumsum(0), (1, 0))


def _indices(there):
    return None if there.all() else there.flatten().nonzero().squeeze(1)


def spread(rows, indices, count):
    """`count` rows: these at these indices, and 0 elsewhere."""
    return rows if indices is None else rows.new_zeros(count, *rows.shape[1:]).index_copy(0, indices, rows)


def shown(x, there):
    """x, with 0 in padding rows."""
    return x if there.all() else torch.where(there.unsqueeze(-1), x, 0)


# ---- Shared beginnings -------------------------------------------------------------------------------------------------------


class Packing:
    """The tokens of a batch as one row. A beginning that sequences have in common, such as the prompt of a group of samples,
    runs once. segments are those of the row.

    there [batch, length] says which tokens are not padding. ids None: nothing is shared."""

    def __init__(self, ids, positions, there):
        order = torch.arange(len(there)) if ids is None else _sorted(ids, there)
        self.shape, lengths = there.shape, there[order].sum(1)
        places = torch.arange(there.numel()).view(self.shape)[order][there[order]]
        common = [0] * len(there) if ids is None else _common(ids.flatten()[places], positions.flatten()[places], lengths)
        first, parts, at = _offsets(lengths).tolist(), list(_parts(lengths.tolist(), common)), 0
        back = torch.empty_like(places)
        for b, i, j, begin, end in parts:
            back[first[b] : first[b] + i] = torch.arange(begin, end)
            back[first[b] + i : first[b] + j] = torch.arange(at, at + j - i)
            at += j - i
        parts = [part for part in parts if part[2] > part[1]]
        self.take = torch.cat([places[first[b] + i : first[b] + j] for b, i, j, _, _ in parts])
        self.places, self.back = places, back
        prefixes = torch.tensor([part[3:] for part in parts]).T
        numbered = torch.cat([torch.arange(1, len(parts) + 1).unsqueeze(0), prefixes])
        self.segments = numbered.repeat_interleave(torch.tensor([j - i for _, i, j, _, _ in parts]), 1)[None, :, None]

    def pack(self, x):
        """The row [1, tokens, ...] of x [batch, length, ...]."""
        return x.flatten(0, 1).index_select(0, self.take).unsqueeze(0)

    def unpack(self, x):
        """The batch [batch, length, ...] of x [1, tokens, ...], with 0 in padding rows."""
        rows = spread(x[0].index_select(0, self.back), self.places, self.shape.numel())
        return rows.view(*self.shape, *x.shape[2:])


def _sorted(ids, there):
    """The order of the sequences by their tokens, in which those with a common beginning are neighbours."""
    rows = [row[tokens].tolist() for row, tokens in zip(ids, there)]
    return torch.tensor(sorted(range(len(rows)), key=rows.__getitem__))


def _common(ids, positions, lengths):
    """How many tokens each sequence has in common with the one before it."""
    ids, positions = ids.split(lengths.tolist()), positions.split(lengths.tolist())
    common = [0]
    for b in range(1, len(ids)):
        n = min(len(ids[b - 1]), len(ids[b]))
        equal = (ids[b - 1][:n] == ids[b][:n]) & (positions[b - 1][:n] == positions[b][:n])
        common.append(int(equal.long().cumprod(0).sum()))
    return common


def _parts(lengths, common):
    """What runs, in order, as (b, i, j, begin, end): tokens i .. j - 1 of sequence b, after the keys begin .. end - 1 of the
    row."""
    begin = 0
    for first, last in groups_of(common):
        shared = min(common[first + 1 : last + 1], default=0)
        if shared:
            yield first, 0, shared, 0, 0
        for b in range(first, last + 1):
            yield b, shared, lengths[b], begin, begin + shared
        begin += shared + sum(lengths[b] - shared for b in range(first, last + 1))


def groups_of(common):
    """Consecutive sequences first .. last that share their beginning, chosen so that most tokens are saved. Sequences b - 1
    and b have common[b] tokens in common."""
    best = [(0, 0)]  # of the sequences before b: tokens saved, first sequence of the last group
    for b in range(len(common)):
        choices, shared = [(best[b][0], b)], math.inf
        for first in range(b - 1, -1, -1):
            shared = min(shared, common[first + 1])
            if shared < WORTH_SHARING:
                break
            choices.append((best[first][0] + (b - first) * shared, first))
        best.append(max(choices))
    groups, end = [], len(common)
    while end > 0:
        groups.append((best[end][1], end - 1))
        end = best[end][1]
    return groups[::-1]
