"""napier.sample: its arguments as NumPy gives them, against the same filters in NumPy, and against token_logprobs."""

import numpy as np
import pytest

import napier
from conftest import BF16, refuses

N, V = 64, 300


@pytest.fixture
def logits(rng):
    return (2 * rng.standard_normal((N, V))).astype(np.float32)


def kept_by(z, top_k=0, top_p=1.0, min_p=0.0):
    """The kept set of one row, by sorting."""
    order = np.argsort(-z, kind="stable")
    order = order[:top_k] if top_k else order
    p = np.exp(z[order].astype(np.float64) - z.max())
    before = np.cumsum(p) - p
    order = order[(before < top_p * p.sum()) & (p >= min_p)]
    keep = np.zeros(z.size, bool)
    keep[order] = True
    return keep


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16], ids=str)
@pytest.mark.parametrize("filters", [{}, {"top_k": 7}, {"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 50, "top_p": 0.9, "min_p": 0.02}], ids=str)
def test_log_probabilities_are_those_of_token_logprobs(logits, dtype, filters):
    x = logits.astype(dtype)
    s = napier.sample(x, temperature=0.75, seed=3, **filters)
    z = x.astype(np.float32) / np.float32(0.75)
    keep = np.array([kept_by(row, **filters) for row in z])
    assert keep[np.arange(N), s.ids].all()
    assert np.array_equal(s.logprobs, napier.token_logprobs(x, s.ids, temperature=0.75, keep=keep).logprobs)
    assert np.array_equal(s.plain_logprobs, napier.token_logprobs(x, s.ids, temperature=0.75).logprobs)
    assert s.ids.dtype == np.int64 and s.logprobs.dtype == np.float32 and s.plain_logprobs.dtype == np.float32


def test_penalties(logits, rng):
    prompts = [rng.integers(0, V, i % 5) for i in range(N)]
    outputs = [list(map(int, rng.integers(0, V, i % 9))) * 2 for i in range(N)]
    s = napier.sample(logits, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.25, prompts=prompts, outputs=outputs)
    late = logits.copy()
    for row, prompt, output in zip(late, prompts, outputs):
        ids = np.union1d(prompt, output).astype(int)
        row[ids] = np.where(row[ids] < 0, row[ids] * np.float32(1.5), row[ids] / np.float32(1.5))
        counts = np.bincount(np.array(output, int), minlength=V).astype(np.float32)
        row -= np.float32(0.25) * counts
        row -= np.float32(0.5) * (counts > 0)
    assert np.array_equal(s.logprobs, napier.token_logprobs(late, s.ids).logprobs)
    assert np.array_equal(s.plain_logprobs, napier.token_logprobs(logits, s.ids).logprobs)
    flat = np.concatenate(outputs).astype(np.int32)
    offsets = np.cumsum([0] + [len(o) for o in outputs])
    again = napier.sample(
        logits, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.25, prompts=prompts, outputs=flat, output_offsets=offsets
    )
    assert all(np.array_equal(a, b) for a, b in zip(s, again))
    assert np.array_equal(
        napier.sample(
            logits, temperature=0, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.25, prompts=prompts, outputs=outputs
        ).ids,
        late.argmax(1),
    )


def test_rows_are_functions_of_seed_sample_and_position(logits):
    samples, positions, seeds = np.arange(N) // 4, np.arange(N) % 7, np.arange(N) - 5
    s = napier.sample(logits, seed=seeds, samples=samples, positions=positions, top_p=0.95)
    order = np.random.default_rng(0).permutation(N)
    t = napier.sample(logits[order], seed=seeds[order], samples=samples[order], positions=positions[order], top_p=0.95)
    assert all(np.array_equal(a[order], b) for a, b in zip(s, t))
    one = napier.sample(logits[9], seed=int(seeds[9]), samples=samples[9], positions=positions[9], top_p=0.95)
    assert one.ids.shape == () and one.ids == s.ids[9] and one.logprobs == s.logprobs[9]
    assert not np.array_equal(napier.sample(logits, seed=1).ids, napier.sample(logits, seed=2).ids)
    assert np.array_equal(napier.sample(logits, seed=2**64 - 1).ids, napier.sample(logits, seed=-1).ids)
    assert np.array_equal(napier.sample(logits, seed=np.int64(4)).ids, napier.sample(logits, seed=4).ids)


def test_shapes(logits):
    x = logits.reshape(4, 16, V)
    s = napier.sample(x, keep=np.arange(V) < 5)
    assert s.ids.shape == s.logprobs.shape == s.plain_logprobs.shape == (4, 16) and s.ids.max() < 5
    assert napier.sample(x[:, :0]).ids.shape == (4, 0)


def test_errors(logits):
    bad = logits.copy()
    bad[5, 7] = np.nan
    for call, text in (
        (lambda: napier.sample(bad), "logits: row 5 has a NaN"),
        (lambda: napier.sample(logits, keep=np.zeros(V, bool)), "row 0 has no id left"),
        (lambda: napier.sample(logits, top_p=0), "top_p 0"),
        (lambda: napier.sample(logits, samples=[1, 2]), "samples: size 2"),
        (lambda: napier.sample(logits, outputs=[[1]] * 3), "output_offsets: size 4"),
        (lambda: napier.sample(logits, outputs=[[V]] * N), "output_ids"),
        (lambda: napier.sample(logits.astype(np.float64)), None),
    ):
        if text is None:
            assert call().ids.shape == (N,)
        else:
            refuses(call, ValueError, text)
    refuses(lambda: napier.sample(logits, outputs=[[0.5]] * N), TypeError, "outputs: expected integers")
