"""napier.torch's functions under PyTorch's own names of arguments, shapes and casts."""
import inspect
import pickle

import torch

import napier
import napier.torch as nt
from support import raises
from test_torch_transforms import close, constant


def test_names_and_dtypes():
    x = constant(3, 4, dtype=torch.bfloat16)
    for ours, theirs in ((nt.softmax, torch.softmax), (nt.log_softmax, torch.log_softmax)):
        close(ours(input=x, dim=1, dtype=torch.float64), theirs(input=x, dim=1, dtype=torch.float64), 1e-14, ours.__name__)
        assert ours(x, 0, torch.float32).dtype == torch.float32
    ids = torch.arange(6).reshape(2, 3)
    close(nt.logsumexp(input=ids, dim=(0,), keepdim=True), torch.logsumexp(ids, (0,), True), 1e-6, "integers")
    z = torch.complex(constant(3, 4, dtype=torch.float64), constant(3, 4, seed=1, dtype=torch.float64))
    assert (nt.logsumexp(z, (0, 1)) - torch.logsumexp(z, (0, 1))).abs() < 1e-14
    raises(TypeError, "complex", lambda: nt.logsumexp(z, b=torch.ones(4)))


def test_ways_to_call():
    x = constant(3, 4)
    for ours, plain, function in ((nt.softmax, napier.softmax, torch.softmax), (nt.log_softmax, napier.log_softmax, torch.log_softmax),
                                  (nt.sparsemax, napier.sparsemax, None)):
        assert pickle.loads(pickle.dumps(ours)) is ours and ours.__module__ == "napier.torch" and "Examples" in inspect.getdoc(ours)
        assert list(inspect.signature(ours).parameters) == ["input", "dim", "dtype", "mask", "causal", "temperature", "masked_rows",
                                                            "algorithm"]
        for given in (ours(x, -2), ours(x, dim=0), ours(dim=0, input=x), ours(x, dim=0, masked_rows="nan", temperature=1.0),
                      ours(x, **{"di" + "m": 0}), ours(x, 0, None), ours(x, 0, algorithm="safe"),
                      ours(x.clone().requires_grad_(), dim=0)):
            assert torch.equal(given.detach(), plain(x, 0))
        assert torch.equal(ours(x, temperature=2), plain(x, temperature=2)) and torch.equal(ours(x.T), plain(x.T))
        raises(TypeError, "multiple values for argument 'input'", lambda: ours(x, input=x))
        raises(TypeError, "missing 1 required positional argument: 'input'", lambda: ours(dim=0))
        raises(TypeError, "unexpected keyword argument 'axis'", lambda: ours(x, axis=0))
        raises(IndexError, "dim: 2", lambda: ours(x, 2))
        raises(ValueError, (f"{ours.__name__}: ", "temperature"), lambda: ours(x, 0, temperature=-1.0))
        if function:
            compiled = torch.compile(lambda x: ours(x, dim=0) + ours(x, 1, mask=x > 0), fullgraph=True, backend="aot_eager")
            assert torch.equal(compiled(x), ours(x, dim=0) + ours(x, 1, mask=x > 0))


def test_matmul_of_any_number_of_dimensions():
    for a, b in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((3,), (4, 3, 2)), ((4, 2, 3), (3,)), ((4, 2, 3), (3, 5)),
                 ((4, 1, 2, 3), (6, 3, 5)), ((2, 3), (4, 3, 5)), ((0, 2, 3), (0, 3, 5))):
        x, y = constant(*a), constant(*b, seed=1)
        close(nt.matmul(x, y), torch.matmul(x, y), 1e-5, f"{a} {b}")
    x, y = constant(4, 2, 3), constant(4, 3, 5)
    assert all(torch.equal(one, napier.matmul(p, q)) for one, p, q in zip(nt.matmul(x, y), x, y)), "the bits of each product"
    for a, b in (((2, 3), (4,)), ((3,), (4, 3)), ((2, 2, 3), (3, 3, 5))):
        raises(ValueError, "b: ", lambda: nt.matmul(constant(*a), constant(*b)))


def test_autocast():
    q, k = constant(1, 2, 3, 4), constant(1, 2, 3, 4, seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        assert nt.matmul(q, k.mT).dtype == nt.attention(q, k, k).dtype == torch.bfloat16
        assert nt.scaled_dot_product_attention(q, k, k).dtype == torch.bfloat16
        assert nt.scaled_dot_product_attention(*[x.double() for x in (q, k, k)]).dtype == torch.float64
    assert torch.equal(nt.attention(q.bfloat16(), k.bfloat16(), k.bfloat16()), torch.autocast("cpu", torch.bfloat16)(nt.attention)(q, k, k))


def test_scaled_dot_product_attention():
    """is_causal where queries and keys differ in number, shared heads, many dimensions, masks, rows without keys."""
    theirs = torch.nn.functional.scaled_dot_product_attention
    for dtype, bound in ((torch.float32, 2e-6), (torch.float64, 1e-14)):
        for q, k, options in (((2, 4, 3, 8), (2, 4, 6, 8), {"is_causal": True}), ((2, 4, 6, 8), (2, 4, 3, 8), {"is_causal": True}),
                              ((2, 4, 3, 8), (2, 2, 5, 8), {"enable_gqa": True}), ((3, 8), (5, 8), {"scale": 0.3}),
                              ((2, 3, 4, 3, 8), (2, 3, 4, 5, 8), {}), ((4, 3, 8), (2, 4, 5, 8), {})):
            x, y, z = constant(*q, dtype=dtype), constant(*k, seed=1, dtype=dtype), constant(*k, seed=2, dtype=dtype)
            close(nt.scaled_dot_product_attention(x, y, z, **options), theirs(x, y, z, **options), bound, f"{q} {k} {options}")
        x, y = constant(2, 4, 3, 8, dtype=dtype), constant(2, 4, 5, 8, seed=1, dtype=dtype)
        mask = constant(3, 5, dtype=dtype) > 0
        mask[1] = False
        out = nt.scaled_dot_product_attention(x, y, y, mask)
        assert (out[:, :, 1] == 0).all()
        close(out, theirs(x, y, y, mask), bound, "mask")
    for call, text in ((lambda: nt.scaled_dot_product_attention(x, y, y, mask, is_causal=True), "is_causal: True"),
                       (lambda: nt.scaled_dot_product_attention(x, y, y, dropout_p=2.0), "dropout_p: 2.0"),
                       (lambda: nt.scaled_dot_product_attention(x, y[..., :4], y), "key: shape"),
                       (lambda: nt.scaled_dot_product_attention(x, y.float(), y), "key: expected"),
                       (lambda: nt.scaled_dot_product_attention(x, y[:, :3], y), "query: batch"),
                       (lambda: nt.scaled_dot_product_attention(x, y, y, mask[:, :2]), "attn_mask: shape")):
        raises(ValueError, text, call)


def test_attention_of_many_dimensions():
    q, k, v = (constant(2, 3, 4, 5, 8, seed=i).requires_grad_() for i in range(3))
    mask = constant(3, 1, 5, 5, seed=4)
    out, lse = nt.attention(q, k, v, mask=mask, return_lse=True)
    close(out, torch.nn.functional.scaled_dot_product_attention(q, k, v, mask), 2e-6, "5 dimensions")
    assert torch.equal(out[1], nt.attention(q[1], k[1], v[1], mask=mask)) and lse.shape == (2, 3, 4, 5)
    mine = torch.autograd.grad(out.sum(), (q, k, v))
    for one, other in zip(mine, torch.autograd.grad(nt.attention(q[1], k[1], v[1], mask=mask).sum(), (q, k, v))):
        assert torch.equal(one[1], other[1])
    arrays = [x.detach().numpy() for x in (q, k, v)]
    output, sums = napier.attention(*arrays, mask=mask.numpy(), return_lse=True)
    assert torch.equal(out.detach(), torch.from_numpy(output)) and sums.shape == (2, 3, 4, 5)
    ones = torch.ones(output.shape).numpy()
    for one, other in zip(mine, napier.attention_backward(ones, *arrays, output, sums, mask=mask.numpy())):
        assert torch.equal(one, torch.from_numpy(other))
    raises(ValueError, "k: batch (3,) is not that of q, (2, 3)", lambda: nt.attention(q, k[0], v))


def test_messages_name_the_argument():
    x = constant(1, 2, 3, 4)
    attention = nt.scaled_dot_product_attention
    for kind, text, call in ((TypeError, "query: expected a tensor, got NoneType", lambda: attention(None, x, x)),
                             (TypeError, "value: expected a tensor, got NoneType", lambda: attention(x, x, None)),
                             (TypeError, "attn_mask: expected a tensor, got str", lambda: attention(x, x, x, "a")),
                             (TypeError, "dropout_p: expected a number, got None", lambda: attention(x, x, x, dropout_p=None)),
                             (TypeError, "scale: expected a number, got 'a'", lambda: attention(x.double(), x.double(), x.double(), scale="a")),
                             (TypeError, "q: expected a tensor, got NoneType", lambda: nt.attention(None, x, x)),
                             (TypeError, "mask: expected a tensor, an array or numbers, got 'a'", lambda: nt.attention(x, x, x, mask="a")),
                             (TypeError, "input: expected a tensor, got NoneType", lambda: nt.softmax(None)),
                             (TypeError, "dim: expected an int, got (0, 1)", lambda: nt.softmax(x, (0, 1))),
                             (TypeError, "dim: expected an int, got (1,)", lambda: nt.logsumexp(x, (0, (1,)))),
                             (TypeError, "dtype: expected a floating-point dtype of torch, got 'float32'", lambda: nt.softmax(x, -1, "float32")),
                             (TypeError, "dtype: expected a floating-point dtype of torch, got torch.int8", lambda: nt.softmax(x, -1, torch.int8)),
                             (TypeError, "b: expected a tensor, an array or numbers, got 'a'", lambda: nt.logsumexp(x, b="a")),
                             (TypeError, "mask: expected a tensor, an array or numbers, got 'a'", lambda: nt.softmax(x, mask="a")),
                             (TypeError, "temperature: expected a number, got 'a'", lambda: nt.softmax(x, temperature="a")),
                             (TypeError, "a: expected a tensor, got NoneType", lambda: nt.matmul(None, x)),
                             (TypeError, "ids: expected a tensor, got NoneType", lambda: nt.gather_logprobs(x[0, 0], None)),
                             (TypeError, "logprobs: expected a tensor, got NoneType", lambda: nt.grpo_loss(None, None))):
        raises(kind, text, call)
    assert nt.logsumexp(torch.tensor(2.0), dim=(0,)) == 2 and nt.logsumexp(torch.tensor(2.0), dim=(0,), keepdim=True).shape == ()
