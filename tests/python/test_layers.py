"""rms_norm, swiglu, rotary and their gradients: shapes, dtypes, errors; composed, the bits of napier.CausalLM. What the numbers
are is for tests/unit (an oracle) and tests/peers (PyTorch, transformers)."""

import json

import numpy as np
import pytest

import napier
import test_model as tiny
from conftest import BF16, bits, layouts, refuses


def rows(*shape, seed=0, dtype="f4"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_values():
    x, w, g, u = rows(3, 5, 40).astype("f8"), rows(40, seed=1).astype("f8"), rows(3, 5, 40, seed=2), rows(3, 5, 40, seed=3)
    want = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * w
    assert np.allclose(napier.rms_norm(x, w, epsilon=1e-3), want, rtol=2e-6)
    assert np.allclose(napier.swiglu(g, u), g / (1 + np.exp(-g.astype("f8"))) * u, rtol=1e-6)
    inverse, scale = napier.rotary_frequencies(10, theta=100.0)
    cosines, sines = napier.rotary_angles(np.arange(15).reshape(3, 5), inverse, scale)
    assert cosines.shape == (3, 5, 5) and np.allclose(cosines[2, 1], np.cos(11 * 100.0 ** (-np.arange(5) / 5)), atol=1e-6)
    heads = x.reshape(3, 5, 4, 10)
    a, b = heads[..., :5], heads[..., 5:]
    c, s = cosines[:, :, None], sines[:, :, None]
    assert np.allclose(napier.rotary(heads, cosines, sines), np.concatenate([a * c - b * s, b * c + a * s], -1), atol=1e-6)


def test_shapes_and_strides():
    x, w = rows(4, 3, 20), rows(20, seed=1)
    flat = napier.rms_norm(x, w)
    assert bits(napier.rms_norm(x.transpose(1, 0, 2), w)) == bits(flat.transpose(1, 0, 2))
    for name, y in layouts(x):
        assert bits(napier.rms_norm(y, w)) == bits(flat), name
    assert bits(napier.rms_norm(x[0, 0], w)) == bits(flat[0, 0]) and napier.rms_norm(x[:0], w).shape == (0, 3, 20)
    assert napier.rms_norm(rows(3, 0), rows(0)).shape == (3, 0)
    assert napier.swiglu(np.float32(1), np.float32(2)).shape == () and napier.swiglu(x.T, x.T).shape == (20, 3, 4)
    cosines, sines = napier.rotary_angles([3], *napier.rotary_frequencies(20))
    assert bits(napier.rotary(x[:1], cosines, sines)[0, 1]) == bits(napier.rotary(x[0], cosines[0], sines[0])[1])


def test_dtypes():
    for dtype in (np.float32, np.float16, BF16):
        x, w = rows(3, 20).astype(dtype), rows(20, seed=1).astype(dtype)
        wide = napier.rms_norm(x, w, dtype="float32")
        assert wide.dtype == np.float32 and bits(napier.rms_norm(x, w)) == bits(wide.astype(dtype))
        wide = napier.swiglu(x, x, dtype="float32")
        assert bits(napier.swiglu(x, x)) == bits(wide.astype(dtype))
        heads, (c, s) = x.reshape(3, 2, 10), napier.rotary_angles(range(3), *napier.rotary_frequencies(10))
        assert bits(napier.rotary(heads, c, s)) == bits(napier.rotary(heads, c, s, dtype="float32").astype(dtype))
        for g in (*napier.rms_norm_backward(x, x, w), *napier.swiglu_backward(x, x, x), napier.rotary_backward(heads, c, s)):
            assert g.dtype == x.dtype
    assert napier.rms_norm([[1, 2]], [1, 1]).dtype == np.float32


def test_gradients_are_those_of_pieces():
    """A row's gradient depends on the row alone; that of the weight is a sum in double."""
    x, g, w = rows(30, 50), rows(30, 50, seed=1), rows(50, seed=2)
    to_x, to_w = napier.rms_norm_backward(g, x, w)
    pieces = [napier.rms_norm_backward(g[i : i + 7], x[i : i + 7], w) for i in range(0, 30, 7)]
    assert bits(np.concatenate([p[0] for p in pieces])) == bits(to_x)
    assert np.allclose(sum(p[1].astype("f8") for p in pieces), to_w, rtol=1e-6)
    c, s = napier.rotary_angles(range(30), *napier.rotary_frequencies(10))
    heads = x.reshape(30, 5, 10)
    assert np.allclose(napier.rotary_backward(napier.rotary(heads, c, s), c, s), heads, atol=1e-6)


def test_errors():
    x, w = rows(3, 20), rows(20)
    c, s = napier.rotary_angles(range(3), *napier.rotary_frequencies(10))
    refuses(lambda: napier.rms_norm(x, w[:3]), ValueError, "weight")
    refuses(lambda: napier.rms_norm(x, w, epsilon=-1), ValueError, "epsilon")
    refuses(lambda: napier.rms_norm(np.float32(1), w), ValueError, "x: expected at least 1 dimension")
    refuses(lambda: napier.swiglu(x, w), ValueError, r"up: shape \(20,\) is not \(3, 20\)")
    refuses(lambda: napier.swiglu_backward(w, x, x), ValueError, "grad_out: shape")
    refuses(lambda: napier.rotary(x.reshape(3, 1, 20), c, s), ValueError, r"cosines: shape \(3, 5\) is not \(3, 10\)")
    refuses(lambda: napier.rotary(rows(3, 2, 11), c, s), ValueError, "odd")
    refuses(lambda: napier.rotary_frequencies(7), ValueError, "dim: 7 is not even")
    refuses(lambda: napier.rotary_frequencies(8, scaling="dynamic"), ValueError, "scaling")
    refuses(lambda: napier.rotary_frequencies(8, scaling="yarn", factor=4), ValueError, "original_max_position_embeddings")
    refuses(lambda: napier.rotary_angles([-1], *napier.rotary_frequencies(10)), ValueError, "positions")


# ---- A model made of them ----------------------------------------------------------------------------------------------------


def weights_of(folder):
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    return {
        name: np.frombuffer(
            data[8 + size :], BF16 if t["dtype"] == "BF16" else np.float32, np.prod(t["shape"], dtype=int), t["data_offsets"][0]
        ).reshape(t["shape"])
        for name, t in header.items()
    }


def states_of(weights, ids, narrow):
    """The states of all positions. What a product or attention reads is first made `narrow`, and weights of attention too."""

    def product(x, name):
        return napier.matmul(x.astype(narrow), weights[name + ".weight"].T, dtype="float32")

    def norm(x, name):
        return napier.rms_norm(x, weights[name + ".weight"], epsilon=1e-6)

    def heads(x, name, cosines, sines):
        return napier.rotary(norm(x.reshape(len(x), -1, tiny.DIM), name), cosines, sines).astype(narrow)

    angles = napier.rotary_angles(range(len(ids)), *napier.rotary_frequencies(tiny.DIM, theta=10000.0))
    x = weights["model.embed_tokens.weight"][ids].astype("f4")
    for layer in range(tiny.LAYERS):
        at = f"model.layers.{layer}."
        n = norm(x, at + "input_layernorm")
        q, k = (heads(product(n, f"{at}self_attn.{i}_proj"), f"{at}self_attn.{i}_norm", *angles) for i in "qk")
        v = product(n, at + "self_attn.v_proj").reshape(k.shape).astype(narrow)
        attended = napier.attention(*(a.swapaxes(0, 1) for a in (q, k, v)), causal=True, bf16_weights=narrow == BF16)
        attended = attended.swapaxes(0, 1).reshape(len(ids), -1)
        x = x + product(attended, at + "self_attn.o_proj")
        n = norm(x, at + "post_attention_layernorm")
        x = x + product(napier.swiglu(product(n, at + "mlp.gate_proj"), product(n, at + "mlp.up_proj")), at + "mlp.down_proj")
    return norm(x, "model.norm").astype(narrow)


@tiny.have
@pytest.mark.parametrize("dtype, word", [(np.float32, "F32"), (BF16, "BF16")], ids=["F32", "BF16"])
@pytest.mark.parametrize("compute, narrow", [("float32", np.float32), ("bfloat16", BF16)], ids=["f32", "bf16"])
def test_a_model_made_of_them_has_the_bits_of_qwen3(tmp_path, dtype, word, compute, narrow):
    tiny.write_model(tmp_path, dtype, word)
    ids, weights = [5, 77, 6, 599, 8, 8, 31, 2, 100, 450, 17], weights_of(tmp_path)
    hidden, logits = napier.CausalLM(str(tmp_path), compute=compute).forward(ids, hidden=True)
    states = states_of(weights, ids, narrow)
    assert bits(hidden) == bits(states.astype(hidden.dtype))
    assert bits(napier.matmul(states, weights["model.embed_tokens.weight"].T, dtype="float32")) == bits(logits)
