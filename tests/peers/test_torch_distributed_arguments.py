"""napier.torch.distributed with no rows, and with arguments that differ between ranks, over gloo. Run as a program, it is the ranks."""
import json
import os
import sys

from support import ROOT, python


def test_no_rows_and_arguments_that_differ():
    result = python(os.path.join(ROOT, "tests", "peers", "test_torch_distributed_arguments.py"), "ranks", OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr[-2000:]
    said = [json.loads(line) for line in result.stdout.splitlines()]
    assert sorted(line.get("mode", str(line)) for line in said) == ["differ"] * 2 + ["mesh"] * 4 + ["no rows"] * 2 + ["one bad rank"] * 3, said


def no_rows(rank, ranks):
    import torch

    import napier.torch.distributed as nd
    ids = torch.empty(0, dtype=torch.int64)
    for sizes in (None, [1500, 1500], [0, 0]):
        def take(function, *others, options, rest=()):
            x = torch.empty(0, 1500 if sizes is None else sizes[rank]).requires_grad_()
            y = function(x, *others, sizes=sizes, **options)
            for each in y if isinstance(y, tuple) else [y]:
                if each is not None:
                    assert each.shape in [(0,), (0, 2), x.shape, ()], each.shape
            wanted = [each.sum() for each in (y if isinstance(y, tuple) else [y]) if each is not None]
            sum(wanted).backward()
            assert x.grad.shape == x.shape

        for function in (nd.softmax, nd.log_softmax, nd.logsumexp):
            take(function, options={"temperature": 0.5})
        take(nd.logsumexp, options={"b": 2.0})
        take(nd.token_logprobs, ids, options=dict(lse=True, entropy=True, loss=True, label_smoothing=0.1))
        take(nd.token_logprobs, ids.view(0, 1).expand(0, 2), options={})
        take(nd.cross_entropy, ids, options={"reduction": "sum"})
        assert nd.cross_entropy(torch.empty(0, 10), ids).isnan()
        hidden, weights = torch.empty(0, 4).requires_grad_(), torch.ones(1500 if sizes is None else sizes[rank], 4).requires_grad_()
        nd.linear_token_logprobs(hidden, weights, ids, sizes=sizes).logprobs.sum().backward()
        assert hidden.grad.shape == (0, 4) and not weights.grad.any()
    return "no rows"


def differ(rank, ranks):
    import torch

    import napier.torch.distributed as nd
    x, ids, bad = torch.zeros(4, 10), torch.arange(4), torch.tensor([0, 1, 2, 99 if rank else 3])
    hidden, weights = torch.zeros(4, 6), torch.zeros(10, 6)
    differing = "ids: rank 1 and rank 0 differ"
    cases = [(ValueError, differing, lambda: nd.token_logprobs(x, ids + rank)),
             (ValueError, differing, lambda: nd.token_logprobs(x, bad)),
             (ValueError, differing, lambda: nd.linear_token_logprobs(hidden, weights, bad)),
             (ValueError, differing, lambda: nd.cross_entropy(x, ids + rank)),
             (ValueError, "ids: rank 1 has 8, rank 0 has 4", lambda: nd.token_logprobs(x, ids if not rank else ids[:, None].expand(4, 2))),
             (ValueError, f"this rank calls softmax with temperature={1.0 + rank}, masked_rows='nan'",
              lambda: nd.softmax(x, temperature=1.0 + rank)),
             (ValueError, "options: rank 1 has", lambda: nd.softmax(x, masked_rows="zero" if rank else "nan")),
             (ValueError, "options: rank 1 has", lambda: nd.token_logprobs(x, ids) if rank else nd.log_softmax(x)),
             (ValueError, "dtype: rank 1 has torch.float16, rank 0 has torch.float32", lambda: nd.softmax(x.half() if rank else x)),
             (TypeError, "temperature: expected a number, got 'a'", lambda: nd.token_logprobs(x, ids, temperature="a")),
             (TypeError, "ignore_index: expected an integer", lambda: nd.token_logprobs(x, ids, ignore_index=0.5)),
             (TypeError, "sizes: expected a list of integers, got 50", lambda: nd.softmax(x, sizes=50)),
             (ValueError, "distributed.token_logprobs: ids: ids[0] is 20", lambda: nd.token_logprobs(x, ids + 20)),
             (ValueError, "distributed.cross_entropy: ids: ids[0] is 20", lambda: nd.cross_entropy(x, ids + 20)),
             (ValueError, "distributed.softmax: ", lambda: nd.softmax(x, temperature=0))]
    for kind, text, call in cases:
        try:
            call()
        except kind as error:
            assert text in str(error) and "_shard_" not in str(error), f"{error} does not say {text}"
        else:
            raise AssertionError(f"no {kind.__name__} about {text}")
    assert torch.equal(nd.logsumexp(x).exp().round(), torch.full((4,), 20.0)), "the group works after refusals"
    return "differ"


def one_bad_rank(rank, ranks):
    """What rank 1 gives wrongly is an error on every rank, which names the rank, the argument and the value, and the group works
    afterwards; with sizes and without."""
    import time

    import torch

    import napier.torch.distributed as nd
    x, ids, hidden, weights = torch.zeros(4, 1500), torch.arange(4), torch.zeros(4, 6), torch.zeros(1500, 6)

    def bad(right, wrong):
        return wrong if rank == 1 else right

    refused = [(TypeError, "x: expected a tensor, got list", lambda o: nd.softmax(bad(x, [1.0]), **o)),
               (TypeError, "x: torch.float64 is not supported across ranks", lambda o: nd.log_softmax(bad(x, x.double()), **o)),
               (ValueError, "x: expected at least 1 dimension", lambda o: nd.logsumexp(bad(x, torch.tensor(1.0)), **o)),
               (ValueError, "b: shape (3,) does not broadcast", lambda o: nd.logsumexp(x, b=bad(2.0, torch.ones(3)), **o)),
               (TypeError, "temperature: expected a number, got 'a'", lambda o: nd.softmax(x, temperature=bad(1.0, "a"), **o)),
               (TypeError, "logits: expected a tensor, got NoneType", lambda o: nd.token_logprobs(bad(x, None), ids, **o)),
               (TypeError, "ids: expected integers, got torch.float32", lambda o: nd.token_logprobs(x, bad(ids, ids.float()), **o)),
               (ValueError, "ids: shape (3,) does not begin", lambda o: nd.token_logprobs(x, bad(ids, ids[1:]), **o)),
               (TypeError, "ignore_index: expected an integer, got 0.5", lambda o: nd.token_logprobs(x, ids, ignore_index=bad(-100, 0.5), **o)),
               (ValueError, "weights: shape (1500, 5) is not [V, 6]",
                lambda o: nd.linear_token_logprobs(hidden, bad(weights, weights[:, 1:]), ids, **o)),
               (TypeError, "hidden: torch.int64 is not supported", lambda o: nd.linear_token_logprobs(bad(hidden, hidden.long()), weights, ids, **o)),
               (ValueError, "reduction: 'max' is not one of", lambda o: nd.cross_entropy(x, ids, reduction=bad("mean", "max"), **o)),
               (ValueError, "sizes: expected the columns of each of 3 ranks, got [1]", lambda o: nd.softmax(x, **{**o, "sizes": bad(o.get("sizes"), [1])})),
               (ValueError, "sizes: rank 1 has 1500 columns, not 7", lambda o: nd.softmax(x, **{**o, "sizes": bad(o.get("sizes"), [1500, 7, 0])}))]
    differing = [("rows: rank 1 has 3, rank 0 has 4", lambda o: nd.softmax(x[bad(0, 1):], **o)),
                 ("dtype: rank 1 has torch.float16, rank 0 has torch.float32", lambda o: nd.logsumexp(bad(x, x.half()), **o)),
                 ("options: rank 1 has others", lambda o: nd.log_softmax(x, temperature=bad(1.0, 2.0), **o)),
                 ("options: rank 1 has others", lambda o: nd.logsumexp(x, b=bad(None, 1.0), **o)),
                 ("options: rank 1 has others", lambda o: nd.cross_entropy(x, ids, reduction=bad("mean", "sum"), **o)),
                 (f"this rank calls cross_entropy with temperature=1.0, softcap=0.0, ignore_index={bad(-100, 2)}",
                  lambda o: nd.cross_entropy(x, ids, ignore_index=bad(-100, 2), reduction="none", **o)),
                 ("dtype_of_b: rank 1 has torch.bfloat16", lambda o: nd.logsumexp(x, b=bad(x, x.bfloat16()), **o)),
                 ("ids: rank 1 and rank 0 differ", lambda o: nd.token_logprobs(x, bad(ids, ids + 4500), **o)),
                 ("hidden: rank 1 has 5, rank 0 has 6", lambda o: nd.linear_token_logprobs(hidden[:, bad(0, 1):], weights[:, bad(0, 1):], ids, **o)),
                 ("sizes: those of rank 1 are not the columns of the ranks, [1500, 1500, 1500]",
                  lambda o: nd.softmax(x, **{**o, "sizes": bad(o.get("sizes"), [1501, 1500, 0])}))]

    def check(kind, text, call, options):
        begin = time.monotonic()
        try:
            call(options)
        except kind as error:
            assert text in str(error) and "_shard_" not in str(error), f"{error} does not say {text}"
        else:
            raise AssertionError(f"no {kind.__name__} about {text}")
        assert time.monotonic() - begin < 60, text
        assert torch.equal(nd.logsumexp(x, **options).exp().round(), torch.full((4,), 4500.0)), f"the group after {text}"

    for options in ({}, {"sizes": [1500] * 3}):
        for kind, text, call in refused:
            check(bad(ValueError, kind), bad("rank 1 refuses its arguments: ", "") + text, call, options)
        for text, call in differing:
            check(ValueError, text, call, options)
    return "one bad rank"


def mesh(rank, ranks):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    import napier.torch.distributed as nd
    x = distribute_tensor(torch.zeros(4, 10), init_device_mesh("cpu", (2, 2)), [Shard(0), Shard(1)])
    ids = torch.zeros(2, dtype=torch.int64)
    assert nd.cross_entropy(x, ids, reduction="none").shape == (4,)
    for reduction in ("mean", "sum"):
        try:
            nd.cross_entropy(x, ids, reduction=reduction)
        except ValueError as error:
            assert f"reduction: '{reduction}'" in str(error), error
        else:
            raise AssertionError("the sum of some rows was taken for the whole one")
    return "mesh"


if __name__ == "__main__":
    from distributed_ranks import ended, run, say
    for function, count in ((no_rows, 2), (differ, 2), (one_bad_rank, 3), (mesh, 4)):
        ended(run(count, lambda rank, ranks, function=function: say({"mode": function(rank, ranks)})))
