"""A head whose vocabulary is sharded over processes, one training step, and the bits of one process:

    torchrun --nproc-per-node 4 examples/sharded_vocabulary.py

in an environment with napier and torch. Each process has some rows of the head's weights. The printed checksums of the loss and of both
gradients are the same for any --nproc-per-node.
"""

import zlib
from typing import Any, Optional

import torch
import torch.distributed as dist

import napier.torch.distributed as nd

TOKENS, HIDDEN, VOCABULARY = 16, 64, 20000


def checksum(x: Optional[torch.Tensor]) -> str:
    assert x is not None
    return f"{zlib.crc32(x.detach().reshape(-1).view(torch.uint8).numpy().tobytes()):08x}"


def main() -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same numbers everywhere
    hidden = torch.randn(TOKENS, HIDDEN, requires_grad=True)
    weights = torch.randn(VOCABULARY, HIDDEN)
    ids = torch.randint(0, VOCABULARY, (TOKENS,))
    begin, end = VOCABULARY * rank // ranks, VOCABULARY * (rank + 1) // ranks
    mine = weights[begin:end].clone().requires_grad_()

    loss = -nd.linear_token_logprobs(hidden, mine, ids).logprobs.sum()
    loss.backward()

    parts: list[Any] = [None] * ranks
    dist.all_gather_object(parts, mine.grad)
    if rank == 0:
        print(f"{ranks} processes: loss {loss.item():.6f} {checksum(loss)}, gradients {checksum(hidden.grad)} {checksum(torch.cat(parts))}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
