"""The two softmax algorithms that Triton kernels are usually written by, as peers: three passes over a row (maximum, sum,
result), and two (maximum and sum together, then the result). A program takes a row, block by block.

Both are right for rows of any length and any finite values: what lies beyond a row's end is read as -inf, so it is neither the
maximum nor part of the sum; and the online form rescales its sum by the running maximum, not by that of the last block."""
import torch
import triton
import triton.language as tl

MOST_COLUMNS_AT_ONCE = 8192


@triton.jit
def _part(row_ptr, start, columns, BLOCK: tl.constexpr):
    at = start + tl.arange(0, BLOCK)
    return tl.load(row_ptr + at, mask=at < columns, other=-float("inf")).to(tl.float32)


@triton.jit
def _write(x_ptr, y_ptr, top, total, columns, BLOCK: tl.constexpr):
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        probs = tl.exp(_part(x_ptr, start, columns, BLOCK) - top) / total
        tl.store(y_ptr + at, probs.to(y_ptr.dtype.element_ty), mask=at < columns)


@triton.jit
def _three_pass_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    most = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        most = tl.maximum(most, _part(x_ptr + row, start, columns, BLOCK))
    top = tl.max(most, 0)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        sums += tl.exp(_part(x_ptr + row, start, columns, BLOCK) - top)
    _write(x_ptr + row, y_ptr + row, top, tl.sum(sums, 0), columns, BLOCK)


@triton.jit
def _online_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    first = _part(x_ptr + row, 0, columns, BLOCK)
    top = tl.max(first, 0)
    shift = tl.where(top == -float("inf"), 0.0, top)  # a block of -inf counts nothing
    total = tl.sum(tl.exp(first - shift), 0)
    for start in range(BLOCK, columns, BLOCK):
        x = _part(x_ptr + row, start, columns, BLOCK)
        higher = tl.maximum(top, tl.max(x, 0))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift), 0)
        top = higher
    _write(x_ptr + row, y_ptr + row, top, total, columns, BLOCK)


def _run(kernel, x):
    """softmax of the rows of a contiguous matrix."""
    rows, columns = x.shape
    y = torch.empty_like(x)
    block = min(triton.next_power_of_2(columns), MOST_COLUMNS_AT_ONCE)
    kernel[(rows,)](x, y, columns, BLOCK=block, num_warps=max(1, min(16, block // 512)))
    return y


def three_pass(x):
    return _run(_three_pass_kernel, x)


def online(x):
    return _run(_online_kernel, x)
