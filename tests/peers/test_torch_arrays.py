"""Plain napier functions on PyTorch tensors: kinds of result, layouts, integers, and what is refused."""
import functools
import threading

import torch

import napier
import support

raises = functools.partial(support.raises, one_line=True)


def test_results_are_tensors():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = torch.randn(3, 4, 5).to(dtype)
        for view in (x, x.transpose(0, 2), x[::2], x[..., 1::2], x.expand(2, 3, 4, 5), x[0, 0, 0], x[:, :0]):
            y = napier.softmax(view)
            assert type(y) is torch.Tensor and y.dtype == dtype and y.shape == view.shape and y.is_contiguous()
            assert torch.equal(y, napier.softmax(view.clone(memory_format=torch.contiguous_format)))
        assert napier.logsumexp(x).shape == () and napier.logsumexp(x, (0, 2), keepdims=True).shape == (1, 4, 1)
        assert napier.softmax(x, dtype=torch.float32).dtype == torch.float32
        out = torch.empty(5, 4, 3, dtype=dtype).permute(2, 1, 0)
        assert napier.log_softmax(x, 1, out=out) is out and torch.equal(out, napier.log_softmax(x, 1))
    assert napier.softmax(torch.arange(3)).dtype == torch.float64
    assert type(napier.softmax(torch.nn.Parameter(torch.ones(3), requires_grad=False))) is torch.Tensor
    t = napier.token_logprobs(torch.randn(3, 5), torch.tensor([0, 1, 2]), argmax=True, entropy=True)
    assert t.argmax.dtype == torch.int64 and t.logprobs.dtype == torch.float32


def test_integers_and_masks_of_any_dtype():
    x, ids = torch.randn(6, 9), torch.tensor([0, 3, 8, 1, 1, 7])
    want = napier.token_logprobs(x, ids).logprobs
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
        for given in (ids.to(dtype), torch.stack([ids, ids], 1).to(dtype)[:, 0], ids.to(dtype).numpy()):
            assert torch.equal(napier.token_logprobs(x, given).logprobs, want), dtype
    mask = torch.tensor([1, 0, 1, 1, 1, 0])
    kl = napier.kl_per_response(want, want * 2, [0, 2, 6], mask=mask.bool())
    for given in (mask, mask.to(torch.uint8), mask.float(), torch.stack([mask, mask], 1).bool()[:, 0], mask.tolist()):
        assert torch.equal(napier.kl_per_response(want, want * 2, [0, 2, 6], mask=given), kl)


def test_gradients_are_not_lost_silently():
    x = torch.randn(3, 4, requires_grad=True)
    for call in (lambda: napier.softmax(x), lambda: napier.softmax(x * 2), lambda: napier.logsumexp(x, (0, 1)),
                 lambda: napier.token_logprobs(x, [0, 1, 2]), lambda: napier.matmul(x, x.T),
                 lambda: napier.SoftmaxState().update(x[0]), lambda: napier.softmax(x.detach(), out=x),
                 lambda: napier.grpo_loss(x[0], [1.0], [0, 4])):
        raises(RuntimeError, "napier.torch", call)
    with torch.no_grad():
        assert torch.equal(napier.softmax(x), napier.softmax(x.detach()))


def test_tangents_are_not_lost_silently():
    from torch.autograd import forward_ad
    x, ids = torch.randn(3, 4), [0, 1, 2]
    calls = (napier.softmax, lambda y: napier.softmax(x, out=y), lambda y: napier.logsumexp(y, (0, 1)),
             lambda y: napier.matmul(x, y.T), lambda y: napier.token_logprobs(y, ids),
             lambda y: napier.attention(x[None, None], x[None, None], y[None, None]))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone(), torch.ones_like(x))
        for call in calls:
            raises(RuntimeError, "forward mode", lambda: call(dual))
            call(x.clone())
        assert torch.equal(napier.softmax(forward_ad.unpack_dual(dual).primal), napier.softmax(x))
        assert torch.equal(napier.gather_logprobs(x, torch.tensor(ids)), napier.gather_logprobs(x, ids))
    for call in calls:
        call(x.clone())
        raises((RuntimeError, NotImplementedError), "", lambda: torch.func.jvp(call, (x,), (torch.ones_like(x),)))


def writes():
    """(name, a call of every function with out=, a tensor for out)."""
    x, ids = torch.randn(3, 4), torch.tensor([0, 1, 2])
    batch = torch.randn(3), [1.0], [0, 3]
    for name in ("softmax", "log_softmax", "safe_softmax"):
        for dtype in (torch.float32, torch.bfloat16):
            yield name, lambda out, of=getattr(napier, name): of(x, out=out), torch.randn(3, 4).to(dtype)
        yield name + " of all", lambda out, of=getattr(napier, name): of(x, None, out=out), torch.randn(3, 4)
        yield name + " of all, with gaps", lambda out, of=getattr(napier, name): of(x, None, out=out), torch.randn(4, 3).T
    for name in ("softmax_backward", "log_softmax_backward"):
        yield name, lambda out, of=getattr(napier, name): of(x, x, out=out), torch.randn(3, 4)
    state = napier.SoftmaxState().update(x[0])
    state.finish()
    yield "SoftmaxState.apply", lambda out: state.apply(x[0], out=out), torch.randn(4)
    backward, grad = napier.rl.token_logprobs_backward, torch.ones(3, 1)
    yield "token_logprobs_backward", lambda out: backward(x, ids, grad_logprobs=grad, out=out), torch.randn(3, 4)
    yield "grpo_from_logits", lambda out: napier.grpo_from_logits(x, ids, *batch[1:], out=out), torch.randn(3, 4)


def test_backward_refuses_what_out_has_overwritten():
    for name, call, out in writes():
        w = torch.ones(out.shape, dtype=out.dtype, requires_grad=True)
        before, wanted = out.clone(), call(out.clone())
        y = w * out
        version = out._version
        assert call(out) is out or name == "grpo_from_logits"
        assert out._version > version and not torch.equal(out, before), name
        raises(RuntimeError, "modified by an inplace operation", y.sum().backward)
        y = w * out
        y.sum().backward()  # nothing is written after it was read
        assert torch.equal(w.grad, out) and (name == "grpo_from_logits" or torch.equal(out, wanted)), name
        y = w * out
        call(out[:] if out.is_contiguous() else out.T.T)  # a view's is its base's
        raises(RuntimeError, "modified by an inplace operation", y.sum().backward)


def test_out_is_refused_where_pytorch_refuses_it():
    for name, call, out in writes():
        raises(RuntimeError, "out: the tensor requires grad", lambda: call(out.clone().requires_grad_()))
        raises(RuntimeError, "out: the tensor requires grad", lambda: call(out.clone().requires_grad_() * 1))
        with torch.no_grad():
            leaf = out.clone().requires_grad_()
            version = leaf._version
            call(leaf)
            assert leaf._version > version, name
        with torch.inference_mode():
            call(out.clone())


def test_all_elements():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = torch.randn(3, 4, 5).to(dtype)
        for view in (x, x.transpose(0, 2), x[..., 1::2], x.expand(2, 3, 4, 5), x[0, 0, 0], x[:, :0], x[:, :0, ::2]):
            for ours in (napier.softmax, napier.log_softmax):
                y = ours(view, None)
                assert y.dtype == dtype and torch.equal(y, ours(view.reshape(-1)).reshape(view.shape))
                out = torch.empty(view.shape[::-1], dtype=dtype).permute(list(range(view.ndim))[::-1])
                assert ours(view, axis=None, out=out) is out and torch.equal(out, y)
            grad = torch.randn(view.shape).to(dtype)
            assert torch.equal(napier.softmax_backward(view, grad, None),
                               napier.softmax_backward(view.reshape(-1), grad.reshape(-1)).reshape(view.shape))
            assert torch.equal(napier.logsumexp_backward(view, torch.tensor(2.0), None),
                               napier.logsumexp_backward(view.reshape(-1), torch.tensor(2.0)).reshape(view.shape))
    raises(ValueError, "dtype: float32 is not the dtype of out, bfloat16",
           lambda: napier.softmax(x, dtype=torch.float32, out=torch.empty_like(x)))


def test_unaligned_memory():
    x = torch.frombuffer(bytearray(13), dtype=torch.float32, offset=1)
    x.copy_(torch.tensor([1.0, 2.0, 5.0]))
    assert torch.equal(napier.softmax(x), napier.softmax(x.clone()))


def test_views_that_change_the_sign():
    z = torch.randn(7, dtype=torch.complex64)
    x = torch.conj(z).imag
    assert x.is_neg() and torch.equal(napier.softmax(x), napier.softmax(x.resolve_neg()))
    assert napier.logsumexp(x.double()) == napier.logsumexp(x.resolve_neg().double())
    raises(ValueError, "out: ", lambda: napier.softmax(torch.zeros(7), out=x))


def test_what_is_no_plain_tensor():
    for x in (torch.zeros(2, device="meta"), torch.eye(2).to_sparse()):
        raises(NotImplementedError, "x: the tensor", lambda: napier.softmax(x))
    raises(NotImplementedError, "x: the tensor", lambda: torch.func.vmap(napier.softmax)(torch.zeros(2, 3)))
    raises(TypeError, "x: complex", lambda: napier.softmax(torch.zeros(2, dtype=torch.complex64)))
    raises(TypeError, "out: expected an array", lambda: napier.softmax(torch.zeros(2), out=torch.zeros(2, dtype=torch.int64)))
    raises(ValueError, "dimension of size -1", lambda: napier.rl.gather_logprobs_backward(torch.ones(2), [0, 0], -1))
    raises(MemoryError, "bytes", lambda: napier.rl.gather_logprobs_backward(torch.ones(4), [0] * 4, 2**62))


def test_memory_goes_back_from_any_thread():
    x = torch.zeros(512, 1024)
    napier.release_memory()
    kept = [napier.softmax(x) for _ in range(4)]
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    assert napier.release_memory() >= 4 * x.numel() * 4
