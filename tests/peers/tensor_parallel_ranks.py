"""What test_torch_tensor_parallel.py runs: models divided over the ranks of a gloo group, against one process."""
import functools
import hashlib
import warnings

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh

import napier.hf as hf
from distributed_ranks import ended, run, say

WORDS = 43
CASES = [("Qwen3", "f32", False), ("Qwen3", "bf16", True), ("Qwen2", "f32", True), ("Llama", "bf16", False), ("Mistral", "f32", False)]


def model_of(family, mode, tied, hidden=40, middle=50, layers=2):
    torch.manual_seed(1)
    options = dict(hidden_size=hidden, intermediate_size=middle, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=4, vocab_size=WORDS,
                   max_position_embeddings=64, eos_token_id=3, bos_token_id=None, tie_word_embeddings=tied)
    if family == "Qwen3":
        options["head_dim"] = 8
    config = getattr(transformers, family + "Config")(**options)
    model = getattr(transformers, family + "ForCausalLM")(config)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return model.to(torch.bfloat16 if mode == "bf16" else torch.float32)


def whole(x):
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def code(*tensors):
    return hashlib.sha256(b"".join(whole(x).detach().contiguous().view(torch.uint8).numpy().tobytes() for x in tensors)).hexdigest()[:12]


def batch(seed):
    g = torch.Generator().manual_seed(seed)
    ids, mask = torch.randint(4, WORDS, (3, 14), generator=g), torch.ones(3, 14, dtype=torch.int64)
    mask[0, :5], mask[2, :1] = 0, 0
    return ids, mask


def results(model):
    """Codes of everything that the model computes: logits, a text, log-probabilities, gradients, weights after two steps."""
    ids, mask = batch(0)
    found = {}
    with torch.no_grad():
        found["logits"] = code(model(ids, attention_mask=mask).logits)
        found["scores"] = code(hf.token_logprobs(model, ids, mask, 9, 0.75))
    found["text"] = model.eval().generate(ids[:, 9:], max_new_tokens=6, do_sample=False, pad_token_id=0).tolist()
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-2)
    for seed in (1, 2):
        ids, mask = batch(seed)
        logprobs, entropies = hf.token_logprobs(model, ids, mask, 9, entropy=True)
        (-logprobs.sum() + 0.1 * entropies.sum()).backward()
        found["trained"] = code(logprobs)
        for name, p in model.named_parameters():
            found[f"{name} {seed}"] = code(p.grad)
        optimizer.step()
        optimizer.zero_grad()
    return found


def divided(rank, ranks, case, expected):
    mesh = init_device_mesh("cpu", (ranks,))
    model = hf.patch(model_of(*case), case[1], mesh=mesh)
    found = results(model)
    differ = [name for name in expected if name != "weights" and found[name] != expected[name]]
    weights = sum(p.to_local().numel() for p in model.parameters() if hasattr(p, "to_local"))
    hf.unpatch(model)
    if code(*model.parameters()) != expected["weights"]:
        differ.append("weights")
    say({"ranks": ranks, "case": case, "checked": len(expected), "differ": differ, "weights": weights})


# ---- What a layer sends ----------------------------------------------------------------------------------------------------------


class Count:
    """Counts messages, and the elements of float32 that a rank receives, without those of the head and the comparison of inputs."""

    def __init__(self):
        self.messages = self.elements = 0
        self.sends = {name: getattr(dist, name) for name in ("all_gather_into_tensor", "all_to_all_single")}

    def __enter__(self):
        for name, send in self.sends.items():
            setattr(dist, name, functools.partial(self.count, send))
        return self

    def __exit__(self, *_):
        for name, send in self.sends.items():
            setattr(dist, name, send)

    def count(self, send, received, sent, **options):
        self.messages += 1
        self.elements += received.nbytes // 4 * (dist.get_world_size() - 1) // dist.get_world_size()
        return send(received, sent, **options)


def count_layer(rank, ranks, family):
    """What a second layer adds, forward and backward, for 8 tokens."""
    mesh, found = init_device_mesh("cpu", (ranks,)), []
    for layers in (1, 2):
        model = model_of(family, "f32", True, hidden=64, middle=96, layers=layers)
        hf.patch(model, mesh=mesh)
        ids = torch.arange(8).unsqueeze(0)
        with Count() as scored, torch.no_grad():
            model(ids, use_cache=False)
        with Count() as forward:
            loss = model(ids, use_cache=False).logits.sum()
        with Count() as backward:
            loss.backward()
        found.append([(c.messages, c.elements) for c in (scored, forward, backward)])
    say({"counted": family, "more": [[b - a for a, b in zip(*pair)] for pair in zip(*found)]})


def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{error} does not say {text}"
    else:
        raise AssertionError(f"no {kind.__name__} about {text}")


def refuse(rank, ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    model = model_of("Llama", "f32", False)
    before = code(*model.parameters())
    refused(NotImplementedError, "num_key_value_heads: 1 heads", lambda: hf.patch(
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**model.config.to_dict(), "num_key_value_heads": 1})), mesh=mesh))
    refused(ValueError, "mesh: expected a DeviceMesh", lambda: hf.patch(model, mesh=2))
    refused(NotImplementedError, "bf16_gradient", lambda: hf.patch(model_of("Llama", "bf16", False), "bf16", True, mesh=mesh))
    refused(NotImplementedError, "use a ForCausalLM", lambda: hf.patch(transformers.LlamaForSequenceClassification(model.config), mesh=mesh))
    other = model_of("Llama", "f32", False)
    with torch.no_grad():
        other.model.norm.weight[0] += rank
    refused(ValueError, "model: not the same on every rank", lambda: hf.patch(other, mesh=mesh))
    hf.patch(model, mesh=mesh)
    ids, _ = batch(0)
    refused(ValueError, "input_ids: not the same on every rank", lambda: model(ids + (ids < 30) * rank))
    hf.patch(model, "bf16", mesh=mesh)  # another mode
    model(ids)
    hf.patch(model)  # no mesh
    assert code(*model.parameters()) == before and not any(hasattr(p, "to_local") for p in model.parameters())
    say({"refused": rank})


def main():
    for case in CASES:
        model = hf.patch(model_of(*case), case[1])
        expected = results(model)
        expected["weights"] = code(*model.parameters())
        for ranks in (1, 2, 4) if case[0] == "Qwen3" else (4,):
            assert ended(run(ranks, divided, case, expected)) == [0] * ranks
    for family in ("Llama", "Qwen3"):
        assert ended(run(2, count_layer, family)) == [0, 0]
    assert ended(run(2, refuse)) == [0, 0]


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main()
