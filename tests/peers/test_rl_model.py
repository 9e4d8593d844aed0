"""Log-probabilities of small random Qwen3 models against transformers in float32; bfloat16's error against its own."""
import numpy as np
import torch
from transformers import Qwen3ForCausalLM

from model_data import CONFIG, Model, checkpoint, make

SHAPES = {
    "tied": dict(),
    "untied": dict(tie_word_embeddings=False),
    "one head a key": dict(num_attention_heads=2, num_key_value_heads=2),
    "eight heads a key": dict(num_attention_heads=8, num_key_value_heads=1, head_dim=16),
    "small theta, one layer": dict(rope_theta=1e4, num_hidden_layers=1),
    "odd sizes": dict(hidden_size=70, intermediate_size=101, head_dim=22, vocab_size=1031),
}


def random_ids(count, seed, vocabulary=CONFIG["vocab_size"]):
    return np.random.default_rng(seed).integers(0, vocabulary, count).tolist()


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].double()


def score_of(model, prompt, response, temperature=1.0):
    """Log-probabilities, entropies and argmax of a response's tokens."""
    z = torch.log_softmax(logits_of(model, prompt + response)[len(prompt) - 1:-1] / temperature, -1)
    entropy = -torch.special.xlogy(z.exp(), z.exp()).sum(-1)
    return z.gather(1, torch.tensor(response)[:, None])[:, 0].numpy(), entropy.numpy(), z.argmax(-1).numpy()


def compare(model, napier_model, prompts, responses, **options):
    """The largest differences of log-probabilities and entropies; argmax must be equal."""
    logprobs, entropy, argmax, greedy = napier_model.score(prompts, responses, **options)
    theirs = [score_of(model, p, r, **options) for p, r in zip(prompts, responses) if r]
    theirs = [np.concatenate(column) for column in zip(*theirs)]
    ids = np.concatenate([np.array(r, np.int64) for r in responses])
    assert (argmax == theirs[2]).all(), f"argmax differs {np.count_nonzero(argmax != theirs[2])} times"
    assert (greedy == (argmax == ids)).all(), "is_greedy is not argmax == id"
    return abs(logprobs - theirs[0]).max(), abs(entropy - theirs[1]).max()


def test_shapes():
    worst = 0.0
    for name, changes in SHAPES.items():
        for dtype in (torch.float32, torch.bfloat16):
            model = make(dtype=dtype, **changes)
            vocabulary = model.config.vocab_size
            with checkpoint(model, dtype=dtype, old_config=dtype is torch.float32) as place:
                mine = Model(place)
                prompt = random_ids(60, 1, vocabulary)
                prompts = [prompt, random_ids(1, 2, vocabulary), prompt, prompt[:30] + [1, 2]]
                responses = [random_ids(n, 3 + n, vocabulary) for n in (12, 200, 1, 0)]
                error, entropy = compare(model, mine, prompts, responses)
                assert error <= 1e-4 and entropy <= 1e-4, f"{name}, {dtype}: off by {error:.1e}, {entropy:.1e}"
                worst = max(worst, error, entropy)
    return f"{2 * len(SHAPES)} models within {worst:.1e}"


def test_temperature_and_prefix():
    model = make()
    with checkpoint(model) as place:
        mine = Model(place)
        for temperature in (0.6, 2.0):
            error, entropy = compare(model, mine, [random_ids(9, 1)], [random_ids(30, 2)], temperature=temperature)
            assert error <= 1e-4 and entropy <= 1e-4, f"T {temperature}: off by {error:.1e}, {entropy:.1e}"
        prefixed = mine.score([[]], [random_ids(5, 2)], prefix_token=7)[0]
        assert (prefixed == mine.score([[7]], [random_ids(5, 2)])[0]).all()


def test_shards():
    model = make(tie_word_embeddings=False)
    with checkpoint(model) as one, checkpoint(model, shard="20KB") as many:
        ids = random_ids(40, 5)
        assert (Model(one).forward(ids)[1] == Model(many).forward(ids)[1]).all()


def test_long():
    """Positions where float32's rounding of angles shows."""
    model = make(num_hidden_layers=2)
    with checkpoint(model) as place:
        ids = random_ids(3000, 6)
        mine = torch.log_softmax(torch.from_numpy(Model(place).forward(ids)[1]).double(), -1)
        theirs = torch.log_softmax(logits_of(model, ids), -1)
        error = float((mine - theirs).abs().max())
        assert error <= 1e-4, f"off by {error:.1e}"
        return f"3000 positions within {error:.1e}"


def test_bf16():
    """bf16's log-probabilities differ from f32's no more than transformers' own do."""
    model = make(dtype=torch.bfloat16, spread=0.4, num_hidden_layers=6)
    ids = random_ids(300, 8)
    chosen = torch.tensor(ids[1:])[:, None]

    def of(logits):
        return torch.log_softmax(logits.double(), -1)[:-1].gather(1, chosen)

    with checkpoint(model, dtype=torch.bfloat16) as place:
        mine = [of(torch.from_numpy(Model(place, bf16=bf16).forward(ids)[1])) for bf16 in (False, True)]
        rounded = Qwen3ForCausalLM.from_pretrained(place, dtype=torch.bfloat16, attn_implementation="eager").eval()
    theirs = [of(logits_of(model, ids)), of(logits_of(rounded, ids))]
    ours, other = [(pair[1] - pair[0]).abs() for pair in (mine, theirs)]
    assert ours.max() <= other.max() and ours.mean() <= other.mean(), f"{ours.max()} and {other.max()}"
    return f"largest {ours.max():.3f} against {other.max():.3f}, mean {ours.mean():.4f} against {other.mean():.4f}"
