"""napier.torch's linear, rms_norm, swiglu and rotary: values and gradients against PyTorch's in float64, 16-bit floats, and the
frequencies of rotary against transformers'. A whole model: test_torch_autograd's compiled graphs, and napier.hf's tests."""
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

import napier
import napier.torch as nt
from support import raises
from test_torch_autograd import HALVES, compare, grid, gradcheck, normal


def rms_norm(x, weight, epsilon=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


def swiglu(gate, up):
    return torch.nn.functional.silu(gate) * up


def angles(tokens, dim):
    return nt.rotary_angles(torch.arange(tokens) * 37, *nt.rotary_frequencies(dim))


def rotary(x, cosines, sines):
    a, b = x.chunk(2, -1)
    c, s = cosines.unsqueeze(-2).to(x.dtype), sines.unsqueeze(-2).to(x.dtype)
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def test_values_and_gradients():
    x, w = normal(2, 3, 130), normal(130, seed=1)
    figures = [compare(nt.rms_norm, rms_norm, [x, w], 1e-5, "rms_norm"),
               compare(lambda x, w: nt.rms_norm(x.transpose(0, 1), w, epsilon=0.1),
                       lambda x, w: rms_norm(x.transpose(0, 1), w, 0.1), [x, w], 1e-5, "rms_norm, strides"),
               compare(nt.swiglu, swiglu, [normal(2, 3, 1100, scale=5.0), normal(2, 3, 1100, seed=1)], 1e-5, "swiglu"),
               compare(lambda g, u: nt.swiglu(g.T, u), lambda g, u: swiglu(g.T, u), [normal(7, 5), normal(5, 7, seed=1)], 1e-5,
                       "swiglu, strides")]
    c, s = angles(5, 8)
    figures.append(compare(lambda x: nt.rotary(x, c, s), lambda x: rotary(x, c, s), [normal(5, 3, 8)], 1e-6, "rotary"))
    figures.append(compare(lambda x: nt.rotary(x.transpose(0, 1), c, s), lambda x: rotary(x.transpose(0, 1), c, s),
                           [normal(3, 5, 8)], 1e-6, "rotary, strides"))
    for bias in ([], [normal(9, seed=2)]):
        figures.append(compare(nt.linear, torch.nn.functional.linear, [normal(2, 3, 40), normal(9, 40, seed=1), *bias], 1e-5,
                               "linear"))
    return f"errors up to {max(figures):.1e}"


def test_gradcheck():
    gradcheck(lambda x, w: nt.rms_norm(x, w, epsilon=0.125), grid(3, 5), grid(5, seed=1))
    gradcheck(nt.swiglu, grid(3, 5), grid(3, 5, seed=1))
    c, s = angles(3, 4)
    gradcheck(lambda x: nt.rotary(x, c, s), grid(3, 2, 4))
    gradcheck(nt.linear, grid(3, 5), grid(4, 5, seed=1), grid(4, seed=2))


def test_16_bits():
    """Results are those of float32, rounded once; gradients have the inputs' dtypes."""
    for dtype in HALVES:
        x, w, g = normal(4, 64, dtype=dtype), normal(64, seed=1, dtype=dtype), normal(4, 64, seed=2, dtype=dtype)
        wide = [t.detach().float() for t in (x, w, g)]
        c, s = angles(4, 32)
        for mine, theirs in ((nt.rms_norm(x, w), nt.rms_norm(wide[0], wide[1])), (nt.swiglu(x, g), nt.swiglu(wide[0], wide[2])),
                             (nt.rotary(x.view(4, 2, 32), c, s), nt.rotary(wide[0].view(4, 2, 32), c, s))):
            assert mine.dtype == dtype and torch.equal(mine, theirs.to(dtype))
        matrix = normal(8, 64, seed=3, dtype=dtype)
        y = nt.linear(x, matrix)
        assert y.dtype == torch.float32 and torch.equal(y, nt.linear(wide[0], matrix.detach().float()))
        loss = y.sum() + nt.swiglu(nt.rms_norm(x, w), g).float().sum()
        assert [t.dtype for t in torch.autograd.grad(loss, [x, w, g, matrix])] == [dtype] * 4


def test_dtypes_of_results():
    """A result of another dtype is that of float32, rounded once; gradients have the inputs' dtypes."""
    x, w, g, (c, s) = normal(4, 64), normal(64, seed=1), normal(4, 64, seed=2), angles(4, 32)
    for function, inputs in ((nt.rms_norm, [x, w]), (nt.swiglu, [x, g]),
                             (lambda x, **o: nt.rotary(x.view(4, 2, 32), c, s, **o), [x])):
        wide = function(*inputs)
        grad = torch.randn(wide.shape, generator=torch.Generator().manual_seed(0)).bfloat16()
        wanted = torch.autograd.grad(wide, inputs, grad.float())
        for dtype in HALVES:
            assert torch.equal(function(*inputs, dtype=dtype), wide.to(dtype))
        narrow = function(*inputs, dtype=torch.bfloat16)
        for mine, theirs in zip(torch.autograd.grad(narrow, inputs, grad), wanted):
            assert mine.dtype == torch.float32 and torch.equal(mine, theirs)
        for dtype in (torch.float64, torch.int32, "bfloat16"):
            raises(TypeError, "dtype: expected torch.float32, torch.float16 or torch.bfloat16", lambda d=dtype: function(*inputs, dtype=d))


def test_linear_rounds_as_the_models_do():
    x, weight, bias = normal(3, 70), normal(5, 70, seed=1), normal(5, seed=2, dtype=torch.bfloat16)
    for stored in (weight, weight.bfloat16()):
        stored = stored.detach().requires_grad_()
        y = nt.linear(x, stored, bias, compute="bf16")
        assert torch.equal(y, napier.matmul(x.detach().bfloat16(), stored.detach().T, dtype="float32") + bias.detach().float())
        to_x, to_weight, to_bias = torch.autograd.grad(y, [x, stored, bias], torch.ones_like(y))
        assert to_weight.dtype == stored.dtype and torch.equal(to_bias, torch.full((5,), 3.0, dtype=torch.bfloat16))
        assert torch.equal(to_x, napier.matmul(torch.ones(3, 5), stored.detach()))
        assert torch.equal(to_weight, napier.matmul(torch.ones(5, 3), x.detach().bfloat16(), dtype=stored.dtype))


def test_bf16_gradient_of_linear():
    """The products are those of the rounded gradient; the bias takes the gradient as it is."""
    x, bias = normal(150, 70), normal(96, seed=2)
    weight = normal(96, 70, seed=1).detach().bfloat16().requires_grad_()
    y = nt.linear(x, weight, bias, compute="bf16", bf16_gradient=True)
    assert torch.equal(y, nt.linear(x, weight, bias, compute="bf16"))
    grad = normal(150, 96, seed=3).detach()
    rounded = grad.bfloat16()
    to_x, to_weight, to_bias = torch.autograd.grad(y, [x, weight, bias], grad)
    assert torch.equal(to_x, napier.matmul(rounded, weight.detach(), dtype="float32"))
    assert torch.equal(to_weight, napier.matmul(rounded.T, x.detach().bfloat16(), dtype="bfloat16"))
    assert torch.equal(to_bias, napier.matmul(torch.ones(1, 150), grad)[0])
    narrow = x.detach().bfloat16().requires_grad_()
    theirs = torch.autograd.grad(torch.nn.functional.linear(narrow, weight), [narrow, weight], rounded)
    for mine, other in zip((to_x, to_weight), theirs):
        assert (mine.double() - other.double()).norm() < 4e-3 * other.double().norm()
    for compute, stored in (("f32", weight), ("bf16", weight.float())):
        raises(ValueError, "bf16_gradient: expected compute 'bf16' and weight of torch.bfloat16",
               lambda c=compute, w=stored: nt.linear(x, w, compute=c, bf16_gradient=True))


def test_split_linear():
    x, weight = normal(3, 700), normal(5, 700, seed=1).detach().bfloat16().requires_grad_()
    y = nt.linear(x, weight, compute="split")
    assert torch.equal(y, napier.matmul(x.detach(), weight.detach().T, dtype="float32", split=True))
    torch.testing.assert_close(y.double(), x.double() @ weight.double().T, rtol=0, atol=2e-5)
    for split, plain in zip(torch.autograd.grad(y.sum(), [x, weight]), torch.autograd.grad(nt.linear(x, weight).sum(), [x, weight])):
        assert torch.equal(split, plain)
    raises(ValueError, "one operand of a split product is bf16", lambda: nt.linear(x, weight.detach().float(), compute="split"))


def test_a_row_does_not_depend_on_its_batch():
    x, w, matrix = normal(9, 200), normal(200, seed=1), normal(7, 200, seed=2)
    g = normal(9, 200, seed=3).detach()
    for function in (lambda x: nt.rms_norm(x, w), lambda x: nt.swiglu(x, x), lambda x: nt.linear(x, matrix, compute="bf16")):
        y = function(x)
        to_x = torch.autograd.grad(y, x, g[:, :y.shape[1]])[0]
        for i in (0, 4):
            piece = x.detach()[i:i + 2].requires_grad_()
            z = function(piece)
            assert torch.equal(z, y[i:i + 2])
            assert torch.equal(torch.autograd.grad(z, piece, g[i:i + 2, :y.shape[1]])[0], to_x[i:i + 2])


def test_only_wanted_gradients():
    x, w = normal(3, 8), normal(8, seed=1)
    both = torch.autograd.grad(nt.rms_norm(x, w).sum(), [x, w])
    assert torch.equal(torch.autograd.grad(nt.rms_norm(x.detach(), w).sum(), w)[0], both[1])
    assert torch.equal(torch.autograd.grad(nt.rms_norm(x, w.detach()).sum(), x)[0], both[0])
    matrix = normal(4, 8, seed=2)
    assert torch.equal(torch.autograd.grad(nt.linear(x.detach(), matrix).sum(), matrix)[0],
                       torch.autograd.grad(nt.linear(x, matrix).sum(), [x, matrix])[1])


# ---- Frequencies -------------------------------------------------------------------------------------------------------------

SCALINGS = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
    {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 2.0, "high_freq_factor": 3.5, "original_max_position_embeddings": 4096},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096, "beta_fast": 24.0, "beta_slow": 2.0},
    {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 0.707, "mscale_all_dim": 1.0},
    {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 2048, "truncate": False, "attention_factor": 1.5},
    {"rope_type": "yarn", "factor": 1.0, "original_max_position_embeddings": 2048, "mscale": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2},
]


def config_of(theta, dim, **rope):
    return LlamaConfig(hidden_size=4 * dim, num_attention_heads=4, head_dim=dim, max_position_embeddings=131072,
                       rope_parameters={"rope_theta": theta, **rope})


def test_frequencies():
    worst = 0.0
    for theta, dim in ((10000.0, 64), (5e5, 128), (1e6, 96)):
        for rope in SCALINGS:
            theirs, their_scale = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config_of(theta, dim, **rope), "cpu")
            options = {("scaling" if name == "rope_type" else name): value for name, value in rope.items()}
            mine, scale = nt.rotary_frequencies(dim, theta=theta, **options)
            error = ((mine - theirs).abs() / theirs).max().item()
            assert mine.dtype == torch.float32 and abs(scale - their_scale) <= 1e-15 * their_scale and error < 2e-6, (rope, error)
            worst = max(worst, error)
    return f"relative errors up to {worst:.1e}"


def test_angles_and_rotation():
    """transformers' rotation of [batch, heads, tokens, dim]; its f32 cosines differ by an ulp of the angle at most."""
    config = config_of(10000.0, 32, **SCALINGS[3])
    embedding, positions = LlamaRotaryEmbedding(config), torch.tensor([[0, 1, 2, 500], [7, 8, 9, 10]])
    q = normal(2, 4, 4, 32).detach()
    cos, sin = embedding(q, positions)
    theirs, _ = apply_rotary_pos_emb(q, q, cos, sin)
    cosines, sines = nt.rotary_angles(positions, *nt.rotary_frequencies(32, scaling="yarn", factor=4.0,
                                                                        original_max_position_embeddings=32768))
    mine = nt.rotary(q.transpose(1, 2), cosines, sines).transpose(1, 2)
    assert (cos[..., :16] - cosines).abs().max() < 1e-4 and (mine - theirs).abs().max() < 1e-3
    compiled = torch.compile(lambda p, f: nt.rotary_angles(p, f, 1.5), fullgraph=True, backend="aot_eager")
    frequencies = nt.rotary_frequencies(32)[0]
    assert all(torch.equal(a, b) for a, b in zip(compiled(positions, frequencies), nt.rotary_angles(positions, frequencies, 1.5)))


# ---- Refusals ----------------------------------------------------------------------------------------------------------------


def test_refusals():
    x, w = normal(3, 8), normal(8)
    c, s = angles(3, 8)
    for call, kind, text in [
        (lambda: nt.rms_norm(x, w[:3]), ValueError, "weight: expected shape (8,), got (3,)"),
        (lambda: nt.rms_norm(x, w, epsilon=-1.0), ValueError, "epsilon"),
        (lambda: nt.rms_norm(torch.tensor(1.0), w), ValueError, "x: expected at least 1 dimension"),
        (lambda: nt.swiglu(x, w), ValueError, "up: expected shape (3, 8), got (8,)"),
        (lambda: nt.rotary(x.view(3, 1, 8), c[:2], s), ValueError, "cosines: expected shape (3, 4), got (2, 4)"),
        (lambda: nt.rotary(normal(3, 1, 7), c, s), ValueError, "x: dim 7 is odd"),
        (lambda: nt.rotary(x.view(3, 1, 8), c.requires_grad_(), s), RuntimeError, "napier.torch.rotary: cosines has no gradient here"),
        (lambda: nt.rotary_angles(torch.tensor([-1]), torch.ones(2)), ValueError, "positions"),
        (lambda: nt.rotary_angles([1, 2], torch.ones(2, 2)), ValueError, "inverse"),
        (lambda: nt.linear(x, w), ValueError, "weight: shape (8,) does not fit"),
        (lambda: nt.linear(x, normal(4, 7)), ValueError, "expected [O, 8]"),
        (lambda: nt.linear(x, normal(4, 8), w), ValueError, "bias: expected shape (4,), got (8,)"),
        (lambda: nt.linear(x, normal(4, 8), compute="f16"), ValueError, "compute"),
    ]:
        raises(kind, text, call)
