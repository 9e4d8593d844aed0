"""napier.torch on a GPU: what it says where there is none; the functions that have kernels on the emulated device of tests/cuda,
through the same extension, autograd and compiled graphs; and on a real one where PyTorch finds it: the CPU's bits."""
import os

import torch

import napier
import napier.torch as nt
import test_torch_autograd as cpu
from napier._torch import tokens
from support import Skip, python, raises

HERE = os.path.dirname(os.path.abspath(__file__))
EMULATED = os.path.join(os.environ.get("NAPIER_PEERS_BUILD", ""), "library", "python", "emulated")


def test_cuda_is_not_there():
    """Tensors that only say that they are on a GPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    assert (napier.cuda_device_count() > 0) <= torch.cuda.is_available()
    if napier.cuda_device_count():
        raise Skip("there is a device")
    with FakeTensorMode():
        x, ids = torch.empty(3, 4, device="cuda"), torch.zeros(3, dtype=torch.int64)
        other = torch.empty(3, device="xpu")
    text = (": the tensor is on cuda:0, and this build of napier computes on the CPU only: it was built without CUDA, or finds "
            "no device of compute capability 8.0 or later (use .cpu())")
    for name, call in (("input", lambda: nt.softmax(x)), ("input", lambda: nt.logsumexp(x, b=2.0)), ("a", lambda: nt.matmul(x, x.T)),
                       ("logits", lambda: nt.token_logprobs(x, ids)), ("q", lambda: nt.attention(x, x, x)),
                       ("policy_logits", lambda: nt.kl_full(x, x)), ("logprobs", lambda: nt.grpo_loss(x[0], [1.0], [0, 4]))):
        raises(NotImplementedError, name + text, call)
    raises(NotImplementedError, "input: the tensor is on xpu:0; napier computes on the CPU and on CUDA devices",
           lambda: nt.softmax(other))
    assert nt.softmax(torch.empty(2, 3, device="meta")).shape == (2, 3)


# ---- What has kernels, with the CPU's bits --------------------------------------------------------------------------------------

BITWISE = {"softmax", "log_softmax", "logsumexp", "matmul", "token_logprobs", "gather", "kl", "kl_full", "rubric", "grpo_loss",
           "grpo_token_loss", "grpo_from_logits"}


def bitwise_examples(device="cpu"):
    """Those of cpu.examples, and: 16 bits, double precision, views, more dimensions, lists and ids of other dtypes."""
    def normal(*shape, **options):
        return cpu.normal(*shape, **options).detach().to(device).requires_grad_()

    for name, function, inputs in cpu.examples(device):
        if name in BITWISE:
            yield name, function, inputs
    for dtype in (*cpu.HALVES, torch.float64):
        x = normal(5, 300, dtype=dtype)
        yield f"softmax {dtype}", nt.softmax, [x]
        yield f"log_softmax {dtype}, first axis", lambda x: nt.log_softmax(x, 0, temperature=0.7), [x]
        yield f"logsumexp {dtype}", lambda x: nt.logsumexp(x, 1), [x]
    x = normal(3, 4, 5, 6)
    yield "softmax of a view", lambda x: nt.softmax(x.transpose(0, 2)[1:, ::2], 1), [x]
    yield "logsumexp over two", lambda x: nt.logsumexp(x, (0, 2), True), [x]
    yield "softmax of nothing", nt.softmax, [normal(0, 3)]
    v, u = normal(cpu.N), normal(cpu.N, seed=1)
    yield "kl with lists", lambda v, u: nt.kl_per_response(v, u, [0, 5, 5, 9, 12], mask=[1, 0, 1] * 4, estimator="k2"), [v, u]
    ids = cpu.ids_of().to(torch.int16).to(device)
    yield "gather by int16", lambda x: nt.gather_logprobs(x, ids), [normal(cpu.N, cpu.V)]
    q, k, v = normal(2, 4, 5, 8), normal(2, 2, 9, 8, seed=1), normal(2, 2, 9, 11, seed=2)
    seen = (normal(4, 5, 9, seed=3) < 1.0).detach()
    yield "attention", lambda q, k, v: nt.attention(q, k, v, causal=True), [q, k, v]
    yield "attention with a mask", lambda q, k, v: nt.attention(q, k, v, mask=seen, masked_rows="zero"), [q, k, v]
    yield "ragged attention", lambda q, k, v: nt.attention(
        q, k, v, causal=True, query_offsets=[0, 3, 3, 8], key_offsets=[10, 14, 14, 19],
        prefix=([0, 2, 0], [6, 2, 10])), [normal(8, 4, 16), normal(20, 2, 16, seed=1), normal(20, 2, 16, seed=2)]


def bits(tensors):
    return [t.detach().cpu().contiguous().view(torch.uint8) if t.ndim else t.detach().cpu() for t in tensors]


def metrics_of():
    logprobs, old, ref = (cpu.normal(cpu.N, seed=seed).detach() for seed in range(3))
    loss, metrics = nt.grpo_loss(logprobs, cpu.ADVANTAGES, cpu.OFFSETS, beta=0.1, old_logprobs=old, ref_logprobs=ref)
    return [loss, *metrics.values()]


def draws_of():
    x, outputs = cpu.normal(cpu.N, cpu.V).detach(), [[i, 3, 3] for i in range(cpu.N)]
    return [*nt.sample(x, top_k=20, top_p=0.9, frequency_penalty=0.5, outputs=outputs, seed=5, positions=torch.arange(cpu.N)),
            *nt.sample(x, temperature=0, keep=torch.arange(cpu.V) % 3 > 0)]


def of_all():
    """The plain functions of all elements, of tensors with and without gaps."""
    x = cpu.normal(4, 6).detach()
    for view in (x, x.T, x[:, ::2]):
        yield napier.softmax(view, None)
        yield napier.log_softmax(view, None, out=torch.empty(view.shape[::-1]).T)
        yield napier.softmax_backward(view, view, None)
        yield napier.logsumexp_backward(view, torch.tensor(2.0), None)


def emulated():
    """In a process whose napier is the one for the emulated device."""
    emulate = napier._napier._emulate
    tokens._FINALS = 0  # for the CPU only; the emulated device's tensors say that they are on it
    checked = []
    for name, function, inputs in bitwise_examples():
        results = {}
        for on in (False, True):
            emulate(on)
            results[on] = bits(cpu.values_and_gradients(function, inputs))
        assert all(torch.equal(a, b) for a, b in zip(*results.values(), strict=True)), name
        checked.append(name)
    emulate(False)
    want, want_of_all, draws = metrics_of(), list(of_all()), draws_of()
    emulate(True)
    assert all(torch.equal(a, b) for a, b in zip(want, metrics_of(), strict=True)), "metrics"
    assert all(torch.equal(a, b) for a, b in zip(draws, draws_of(), strict=True)), "sample"
    assert all(torch.equal(a, b) for a, b in zip(want_of_all, of_all(), strict=True)), "all elements"
    for name, function, inputs in cpu.examples():  # through compiled graphs
        if name in ("softmax", "kl"):
            torch._dynamo.reset()
            compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
            both = (cpu.values_and_gradients(f, inputs) for f in (function, compiled))
            for a, b in zip(*both, strict=True):
                assert torch.equal(a, b), f"{name}, compiled"
    x = torch.zeros(3, 4)
    out = torch.empty(3, 4)
    assert napier.softmax(x, out=out) is out and (out == 0.25).all()
    # an id that the host cannot see: NaN, and told when asked. This is what shows that the device is used
    chosen = nt.gather_logprobs(x, torch.tensor([0, 7, 1]))
    assert chosen[1].isnan() and not chosen[[0, 2]].isnan().any()
    raises(ValueError, "the id at index 1 is no column", lambda: napier._napier._cuda_synchronize(x))
    assert napier._napier._cuda_synchronize(x) is None, "told once"
    drawn = nt.sample(torch.tensor([[1.0, 2.0], [torch.nan, 0.0]]))
    assert drawn.ids[0] >= 0 and drawn.ids[1] == -1 and drawn.logprobs[1].isnan()
    raises(ValueError, "logits: row 1 has a NaN", lambda: napier._napier._cuda_synchronize(x))
    raises(ValueError, "ids: it is on the CPU", lambda: napier._napier.gather_logprobs(x, [0, 1, 2]))
    on_tensor_cores()
    print(len(checked), "on the emulated device")


def on_tensor_cores():
    """What has bits of its own there: near the CPU's."""
    ids = cpu.ids_of()
    hidden, weights = (cpu.normal(*shape, dtype=torch.bfloat16) for shape in ((cpu.N, 16), (cpu.V, 16)))
    heads = [cpu.normal(1, 2, 70, 16, seed=seed, dtype=torch.bfloat16) for seed in range(3)]
    for name, function, inputs in (
            ("linear", lambda h, w: nt.linear_token_logprobs(h, w, ids, lse=True)[:2], [hidden, weights]),
            ("attention", lambda q, k, v: nt.attention(q, k, v, causal=True), heads)):
        results = []
        for on in (False, True):
            napier._napier._emulate(on)
            results.append(cpu.values_and_gradients(function, inputs))
        for right, mine in zip(*results, strict=True):
            error = (mine.double() - right.double()).abs().max() / right.double().abs().max()
            assert error <= 0.03, f"{name}: {error:.3f} of the largest"


def test_emulated_device():
    if not os.path.isdir(os.path.join(EMULATED, "napier")):
        raise Skip("the extension was not built for the emulated device (NAPIER_PYTHON_EMULATED)")
    done = python("-c", "import test_torch_cuda; test_torch_cuda.emulated()", PYTHONPATH=EMULATED + os.pathsep + HERE)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_real_device():
    """The bits are the same on a GPU, and on another stream."""
    if not napier.cuda_device_count():
        raise Skip("no CUDA device, or napier was built without CUDA")
    stream = torch.cuda.Stream()
    for (name, host, inputs), (_, device, there) in zip(bitwise_examples(), bitwise_examples("cuda"), strict=True):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            mine = bits(cpu.values_and_gradients(device, there))
            nt.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(bits(cpu.values_and_gradients(host, inputs)), mine, strict=True)), name
