"""Plain napier functions on PyTorch tensors: kinds of result, layouts, integers, and what is refused."""
import threading

import torch

import napier


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{error!r} does not say {text!r}"
        assert "\n" not in str(error)
    else:
        raise AssertionError(f"no {kind.__name__} about {text!r}")


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
