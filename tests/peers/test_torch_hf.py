"""napier.hf: models of transformers that compute with Napier, against napier's own models (bits), against transformers (values
and gradients), and under TRL's GRPOTrainer. All models are small and random."""
import copy
import functools
import os
import pickle
import tempfile
import types
import unittest.mock
import warnings

import torch
import transformers
from transformers import PreTrainedTokenizerFast

import napier
import napier.hf as hf
import napier.torch as nt
from napier._torch.packing import Packing, groups_of
from support import ROOT, Skip, raises

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

FAMILIES = ("Qwen3", "Qwen2", "Llama", "Mistral")
CONFIG = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, intermediate_size=80,
              vocab_size=307, max_position_embeddings=512, rms_norm_eps=1e-6, pad_token_id=0, bos_token_id=1, eos_token_id=2)
CHANGES = {"Qwen3": dict(head_dim=16), "Qwen2": {}, "Llama": {}, "Mistral": dict(sliding_window=None)}
MODES = {"f32": "float32", "bf16": "bfloat16"}
LLAMA3 = dict(rope_type="llama3", rope_theta=1e4, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=64)


def make(family="Qwen3", task="ForCausalLM", dtype=torch.float32, seed=0, spread=0.4, **changes):
    """A model in eval mode whose log-probabilities are far from uniform."""
    torch.manual_seed(seed)
    config = getattr(transformers, family + "Config")(**{**CONFIG, **CHANGES[family], **changes})
    model = getattr(transformers, family + task)(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn_like(weight) * spread / weight.shape[-1] ** 0.25 + (1.0 if "norm" in name else 0.0))
    return model.to(dtype).eval()


def ours(model, compute, **options):
    """napier's model of the same weights. It keeps its folder as long as it lives."""
    folder = tempfile.TemporaryDirectory()
    model.save_pretrained(folder.name)
    mine = napier.CausalLM(folder.name, compute=MODES[compute], **options)
    mine.folder = folder
    return mine


def texts(lengths, seed=1, vocabulary=307):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, vocabulary, (n,), generator=generator) for n in lengths]


def padded(sequences, length, left):
    """(ids, mask) [B, length], where left[b] positions come before sequence b."""
    ids, mask = torch.zeros(len(sequences), length, dtype=torch.int64), torch.zeros(len(sequences), length, dtype=torch.int64)
    for b, (x, begin) in enumerate(zip(sequences, left)):
        ids[b, begin:begin + len(x)] = x
        mask[b, begin:begin + len(x)] = 1
    return ids, mask


def same(a, b, what=""):
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    assert a.shape == b.shape and a.dtype == b.dtype, (what, a.shape, b.shape, a.dtype, b.dtype)
    assert torch.equal(a, b), f"{what}: {(a != b).sum()} of {a.numel()} differ, by {(a.double() - b.double()).abs().max():.1e}"


def flat(sequences):
    offsets = torch.tensor([0] + [len(x) for x in sequences]).cumsum(0)
    return torch.cat(sequences).tolist(), offsets.tolist()


def loss_and_gradients(model, ids, mask, weights, **options):
    """A loss that reads the logits of all tokens, and the gradients."""
    model.zero_grad()
    logits = model(ids, attention_mask=mask, **options).logits
    loss = (logits.double() * weights * mask.unsqueeze(-1)).sum()
    loss.backward()
    return logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


def rounded(x, compute):
    return x.bfloat16().float() if compute == "bf16" else x


# ---- Bits of napier's own models ---------------------------------------------------------------------------------------------

SEQUENCES = texts((1, 9, 23, 14))
IDS, MASK = padded(SEQUENCES, 27, (26, 3, 4, 0))


def check_model(model, compute):
    """States of every layer, logits and log-probabilities of a padded batch."""
    mine = ours(model, compute)
    hidden, logits = (torch.from_numpy(x) for x in mine.forward(*flat(SEQUENCES), hidden=True))
    there = MASK.bool()
    with hf.patched(model, compute), torch.no_grad():
        cached = model(IDS, attention_mask=MASK, output_hidden_states=True, use_cache=True)
        out = model(IDS, attention_mask=MASK, output_hidden_states=True, use_cache=False)
    for a, b in zip((cached.logits, *cached.hidden_states), (out.logits, *out.hidden_states)):
        same(a[there], b[there], "with a cache")
    assert (out.logits[~there] == 0).all() and (cached.logits[~there] == 0).all()
    same(out.logits[there], logits, "logits")
    same(out.hidden_states[-1][there], hidden, "states")
    for layers in range(1, model.config.num_hidden_layers):
        shorter = copy.deepcopy(model)
        shorter.config.num_hidden_layers = layers
        if getattr(shorter.config, "layer_types", None):
            shorter.config.layer_types = shorter.config.layer_types[:layers]
        del shorter.model.layers[layers:]
        states = torch.from_numpy(ours(shorter, compute).forward(*flat(SEQUENCES), hidden=True)[0])
        norm = shorter.model.norm
        mine_here = nt.rms_norm(out.hidden_states[layers][there], norm.weight.detach(), epsilon=norm.variance_epsilon)
        same(rounded(mine_here, compute), states, f"layer {layers}")


def test_bits_of_every_family():
    for family in FAMILIES:
        for compute in MODES:
            for dtype, tied in ((torch.float32, False), (torch.bfloat16, True), (torch.float16, False)):
                check_model(make(family, dtype=dtype, tie_word_embeddings=tied), compute)
    return f"{len(FAMILIES)} families"


def test_bits_of_heads_biases_and_rotations():
    cases = [("Qwen3", dict(num_key_value_heads=1)), ("Qwen3", dict(num_key_value_heads=4, head_dim=34)),
             ("Qwen3", dict(hidden_size=20, intermediate_size=33)), ("Llama", dict(rope_parameters=LLAMA3)),
             ("Qwen2", dict(rope_parameters=YARN)), ("Qwen3", dict(rope_parameters={**YARN, "factor": None})), ("Mistral", dict(sliding_window=27)), ("Llama", dict(attention_bias=True)),
             ("Qwen2", dict(use_sliding_window=True, sliding_window=27, max_window_layers=1)),
             ("Qwen3", dict(rope_parameters=dict(rope_type="default", rope_theta=1e6)))]
    for family, changes in cases:
        for compute in MODES:
            check_model(make(family, **changes), compute)


def scored(mine, prompts, responses, temperature):
    s = mine.score([p.tolist() for p in prompts], [r.tolist() for r in responses], temperature=temperature, greedy=False)
    return torch.from_numpy(s.logprobs), torch.from_numpy(s.entropy)


PROMPTS, RESPONSES = texts((3, 8, 1, 5, 8), seed=2), texts((6, 1, 4, 9, 2), seed=3)


def rollout(order, left, right):
    """A batch of TRL: prompts padded on the left, responses on the right."""
    prompts, responses = [PROMPTS[i] for i in order], [RESPONSES[i] for i in order]
    most = max(map(len, prompts)) + left
    ids, mask = padded([torch.cat(x) for x in zip(prompts, responses)], most + max(map(len, responses)) + right,
                       [most - len(p) for p in prompts])
    return prompts, responses, ids, mask, ids.shape[1] - most


def test_log_probabilities_of_padded_batches():
    """In any order and with any padding, with 1 and 2 threads, they are those that napier's scorer gives."""
    for compute in MODES:
        model = make("Qwen3", dtype=torch.bfloat16)
        mine = ours(model, compute)
        hf.patch(model, compute)
        for order, left, right in (([0, 1, 2, 3, 4], 0, 0), ([3, 0], 5, 2), ([2], 1, 0), ([4, 4, 1], 0, 7)):
            prompts, responses, ids, mask, length = rollout(order, left, right)
            wanted = scored(mine, prompts, responses, 0.7)
            for threads in (1, 2):
                threads_before = napier.get_num_threads(), torch.get_num_threads()
                napier.set_num_threads(threads)
                torch.set_num_threads(threads)
                found = hf.token_logprobs(model, ids, mask, length, 0.7, entropy=True)
                napier.set_num_threads(threads_before[0])
                torch.set_num_threads(threads_before[1])
                there = mask[:, -length:].bool()
                for x, y in zip(found, wanted):
                    same(x[there].detach(), y)
                    assert (x[~there] == 0).all() and x.requires_grad
            no_entropy = hf.token_logprobs(model, ids, mask, length, 0.7)
            same(no_entropy, found[0])
            logits = model(ids, attention_mask=mask, logits_to_keep=length + 1).logits[:, :-1]
            from_logits = nt.token_logprobs(logits[there], ids[:, -length:][there], temperature=0.7).logprobs
            same(from_logits, found[0][there], "from logits")


def test_bits_do_not_depend_on_threads_or_instructions():
    """Gradients too."""
    model = hf.patch(make("Qwen3"))
    weights = torch.randn(*IDS.shape, 307, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    wanted = loss_and_gradients(model, IDS, MASK, weights)
    before = napier.get_isa(), napier.get_num_threads(), torch.get_num_threads()
    try:
        for isa in ("scalar", "avx2", "avx512"):
            for threads in (1, 2):
                if napier.isa_available(isa):
                    napier.set_isa(isa)
                    napier.set_num_threads(threads)
                    torch.set_num_threads(threads)
                    found = loss_and_gradients(model, IDS, MASK, weights)
                    same(found[0], wanted[0], isa)
                    for name, grad in wanted[1].items():
                        same(found[1][name], grad, f"{isa}, {name}")
    finally:
        napier.set_isa(before[0])
        napier.set_num_threads(before[1])
        torch.set_num_threads(before[2])


def test_steps_of_an_optimizer():
    """After each step the bits are those of napier's model of the new weights."""
    for compute in MODES:
        model = hf.patch(make("Qwen2", tie_word_embeddings=True), compute).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        prompts, responses, ids, mask, length = rollout([0, 3, 4], 1, 1)
        there, before = mask[:, -length:].bool(), None
        live = napier.CausalLM.from_model(model, compute=MODES[compute])
        for _ in range(3):
            logprobs = hf.token_logprobs(model, ids, mask, length)
            wanted = scored(ours(model, compute), prompts, responses, 1.0)[0]
            same(logprobs[there].detach(), wanted, compute)
            live.update()
            same(scored(live, prompts, responses, 1.0)[0], wanted, "the weights in place")
            assert before is None or not torch.equal(before, wanted)
            before = wanted
            optimizer.zero_grad()
            (-logprobs.sum()).backward()
            optimizer.step()


def test_sequence_classification():
    """The scores of reward models are napier's. Padding may be on either side."""
    for family in FAMILIES:
        for compute in MODES:
            model = make(family, "ForSequenceClassification", num_labels=3)
            mine = ours(model, compute)
            rewards = mine.rewards([x[:1].tolist() for x in SEQUENCES], [x[1:].tolist() for x in SEQUENCES])
            with torch.no_grad():
                plain = model(IDS, attention_mask=MASK, position_ids=(MASK.cumsum(1) - 1).clamp(min=0)).logits
                batch = hf.patch(model, compute)(IDS, attention_mask=MASK).logits
            same(batch, torch.from_numpy(rewards), compute)
            assert (plain - batch).abs().max() < (1e-4 if compute == "f32" else 0.1)


# ---- Caches, checkpoints, packing --------------------------------------------------------------------------------------------


def test_generation():
    """Token by token through a cache, each row of logits has the bits of one pass, and generate finds the same ids."""
    prompts, there = padded(SEQUENCES, 25, [25 - len(x) for x in SEQUENCES])

    def generate(model, ids, mask, **options):
        return model.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False, eos_token_id=None, **options)

    for compute in MODES:
        model = make("Qwen3")
        with torch.no_grad():
            plain = generate(model, prompts, there)
            ids = generate(hf.patch(model, compute), prompts, there)
            assert compute == "bf16" or torch.equal(ids, plain)
            same(generate(model, prompts, there, use_cache=False), ids)
            same(generate(model, SEQUENCES[2][None], None)[0, -6:], ids[2, -6:])
            mask = torch.cat([there, there.new_ones(len(there), 6)], 1)
            whole = model(ids, attention_mask=mask, use_cache=False).logits
            past, at = None, 0
            for n in (4, 21, 1, 1, 4):
                out = model(ids[:, at:at + n], attention_mask=mask[:, :at + n], past_key_values=past, use_cache=True)
                same(out.logits, whole[:, at:at + n])
                past, at = out.past_key_values, at + n


def test_gradient_checkpointing():
    weights = torch.randn(*IDS.shape, 307, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    for compute in MODES:
        model = hf.patch(make("Qwen3"), compute).train()
        wanted = loss_and_gradients(model, IDS, MASK, weights, use_cache=False)
        for reentrant in (True, False):
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            if reentrant:
                model.enable_input_require_grads()
            found = loss_and_gradients(model, IDS, MASK, weights, use_cache=False)
            same(found[0], wanted[0])
            for name, grad in wanted[1].items():
                same(found[1][name], grad, name)
            model.gradient_checkpointing_disable()


def test_packed_sequences():
    """Without a mask, positions that begin again begin a sequence; with one, positions are used as they are."""
    model = hf.patch(make("Llama"))
    sequences = SEQUENCES[1:]
    with torch.no_grad():
        positions = torch.cat([torch.arange(len(x)) for x in sequences])
        packed = model(torch.cat(sequences)[None], position_ids=positions[None]).logits[0]
        for x, y in zip(sequences, packed.split([len(x) for x in sequences])):
            same(model(x[None]).logits[0], y)
        same(model(IDS, attention_mask=MASK, position_ids=(MASK.cumsum(1) - 1).clamp(min=0)).logits,
             model(IDS, attention_mask=MASK).logits)
        x = sequences[0][None]
        shifted = model(x, position_ids=torch.arange(40, 40 + x.shape[1])[None]).logits
        same(model(x, attention_mask=torch.ones_like(x), position_ids=torch.arange(40, 40 + x.shape[1])[None]).logits, shifted)
        assert (shifted - model(x).logits).abs().max() < 1e-3 and not torch.equal(shifted, model(x).logits)
    raises(ValueError, "position_ids: missing", lambda: model(x, cu_seq_lens_q=torch.tensor([0, 4, 9])))


def test_rows_without_tokens_and_holes():
    """A row of padding only is 0. A hole in the mask is as if its tokens were not there."""
    model = hf.patch(make("Qwen2"))
    mask = MASK.clone()
    mask[0] = 0
    mask[2, 10:13] = 0
    for use_cache in (False, True):
        with torch.no_grad():
            logits = model(IDS, attention_mask=mask.bool(), use_cache=use_cache).logits
            assert (logits[~mask.bool()] == 0).all()
            same(model(IDS[2][mask[2].bool()][None]).logits[0], logits[2][mask[2].bool()])
            empty = model(IDS, attention_mask=torch.zeros_like(MASK), use_cache=use_cache).logits
            assert (empty == 0).all()


def test_shared_beginnings():
    """Groups of samples: each prompt runs once. Logits have the bits of the sequences alone; gradients against float64."""
    a, b, c, d = texts((20, 9, 30, 4), seed=7)
    tails = texts((5, 1, 7, 3, 2, 6, 4), seed=8)
    groups = [torch.cat(x) for x in ((a, tails[0]), (a, tails[1]), (a, tails[2]), (a, tails[2]), (b, tails[3]), (b, c, tails[4]),
                                     (b, c, tails[5]), (b, c), (d, tails[6]), (d, tails[6], d))]
    length = max(map(len, groups)) + 1
    ids, mask = padded(groups, length, [(b * 7) % (length - len(x) + 1) for b, x in enumerate(groups)])
    there = mask.bool()
    packing = Packing(ids, (mask.cumsum(1) - 1).clamp(min=0), there)
    assert packing.take.numel() == (20 + 5 + 1 + 7 + 7) + (9 + 3) + (9 + 30 + 2 + 6) + (4 + 4 + 4)
    weights = torch.randn(*ids.shape, 307, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    model = make("Qwen2")
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    exact = loss_and_gradients(copy.deepcopy(model).double(), ids, mask, weights, position_ids=positions)[1]
    for compute in MODES:
        hf.patch(model, compute)
        logits, gradients = loss_and_gradients(model, ids, mask, weights, use_cache=False)
        with torch.no_grad():
            for x, y, m in zip(groups, logits, there):
                same(model(x[None]).logits[0], y[m])
                assert (y[~m] == 0).all()
        for name, grad in exact.items():
            assert (gradients[name] - grad).norm() < (2e-5 if compute == "f32" else 0.1) * grad.norm(), name
    order = torch.tensor([9, 0, 5, 1, 8, 2, 7, 3, 6, 4])  # TRL shuffles its groups
    assert Packing(ids[order], positions[order], there[order]).take.numel() == packing.take.numel()
    with torch.no_grad():
        same(model(ids[order], attention_mask=mask[order], use_cache=False).logits, logits[order])
    full = torch.stack([groups[0], torch.cat([a, tails[5][:5]]), groups[0]])
    with torch.no_grad():
        for row, x in zip(model(full, use_cache=False).logits, full):
            same(row, model(x[None], use_cache=True).logits[0])
    for common, groups in (([0, 9, 9, 9], [(0, 3)]), ([0, 7, 7], [(0, 0), (1, 1), (2, 2)]), ([0, 50, 8, 50], [(0, 1), (2, 3)]),
                           ([0, 30, 29, 0, 8], [(0, 2), (3, 4)]), ([0], [(0, 0)]), ([0, 100, 90, 100], [(0, 3)])):
        assert groups_of(common) == groups, (common, groups_of(common))


# ---- Values and gradients ----------------------------------------------------------------------------------------------------


def test_against_transformers():
    """Logits against transformers in float32, and gradients against its autograd in float64."""
    worst = 0.0
    weights = torch.randn(*IDS.shape, 307, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    positions = (MASK.cumsum(1) - 1).clamp(min=0)
    for family in FAMILIES:
        for changes in ({}, dict(attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3), dict(rope_parameters=YARN)):
            model = make(family, tie_word_embeddings=bool(changes), spread=0.3, **changes)
            plain = loss_and_gradients(model, IDS, MASK, weights, position_ids=positions)[0]
            exact = loss_and_gradients(copy.deepcopy(model).double(), IDS, MASK, weights, position_ids=positions)
            found = loss_and_gradients(hf.patch(model), IDS, MASK, weights)
            there = MASK.bool()
            assert (found[0] - plain)[there].abs().max() < 1e-4
            assert set(found[1]) == set(exact[1])
            for name, grad in exact[1].items():
                off = ((found[1][name] - grad).norm() / grad.norm().clamp(min=1e-30)).item()
                worst = max(worst, off)
                assert off < 2e-5, (family, name, off)
            rough = loss_and_gradients(hf.patch(model, "bf16"), IDS, MASK, weights)
            for name, grad in exact[1].items():
                off = ((rough[1][name] - grad).norm() / grad.norm().clamp(min=1e-30)).item()
                assert off < 0.1, (family, name, off)
    return f"gradients within {worst:.1e}"


def test_gradients_of_log_probabilities():
    """token_logprobs against log_softmax of transformers' logits in float64."""
    model = make("Qwen3")
    exact = copy.deepcopy(model).double()
    _, _, ids, mask, length = rollout([0, 1, 3], 2, 1)
    there = mask[:, -length:]
    logits = exact(ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits[:, -length - 1:-1] / 0.8
    logp = logits.log_softmax(-1)
    (logp.gather(-1, ids[:, -length:, None])[..., 0] * there).sum().backward(retain_graph=True)
    hf.patch(model)
    found = hf.token_logprobs(model, ids, mask, length, 0.8)
    found.sum().backward()
    for (name, a), (_, b) in zip(model.named_parameters(), exact.named_parameters()):
        assert (a.grad - b.grad).norm() < 2e-5 * b.grad.norm(), name
    model.zero_grad()
    exact.zero_grad()
    (-(logp.exp() * logp).sum(-1) * there).sum().backward()
    hf.token_logprobs(model, ids, mask, length, 0.8, entropy=True)[1].sum().backward()
    for (name, a), (_, b) in zip(model.named_parameters(), exact.named_parameters()):
        assert (a.grad - b.grad).norm() < 5e-5 * b.grad.norm(), name


def test_bf16_gradient():
    """The forward pass keeps its bits; gradients differ by their rounding."""
    model = make("Qwen3", dtype=torch.bfloat16)
    _, _, ids, mask, length = rollout([0, 1, 3], 2, 1)
    found = []
    for rounded in (False, True):
        with hf.patched(model, "bf16", bf16_gradient=rounded):
            model.zero_grad()
            logprobs = hf.token_logprobs(model, ids, mask, length)
            logprobs.sum().backward()
            found.append((logprobs.detach(), [p.grad.float() for p in model.parameters()]))
    same(found[1][0], found[0][0])
    apart = [((a - b).norm() / b.norm()).item() for a, b in zip(found[1][1], found[0][1])]
    assert 0 < max(apart) < 0.03, apart
    hf.patch(model, "bf16", bf16_gradient=True)
    with hf.patched(model):
        pass
    assert model.model._napier.mode == ("bf16", True)
    raises(ValueError, "bf16_gradient: expected compute 'bf16' with it, got 'f32'", lambda: hf.patch(model, bf16_gradient=True))
    raises(NotImplementedError, "bf16_gradient: lm_head.weight is torch.float32",
           lambda: hf.patch(make("Qwen3"), "bf16", bf16_gradient=True), one_line=True)
    return f"gradients apart by {max(apart):.1e}"


def test_padding_has_no_gradient():
    """Even if the loss reads padding rows, and the layers have biases."""
    model = hf.patch(make("Llama", attention_bias=True, mlp_bias=True)).train()
    gradients = []
    for everywhere, use_cache in ((False, False), (True, False), (True, True)):
        model.zero_grad()
        logits = model(IDS, attention_mask=MASK, use_cache=use_cache).logits
        (logits.exp() if everywhere else logits[MASK.bool()].exp()).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for a, b, c in zip(*gradients):
        assert a.isfinite().all() and max((a - b).norm(), (a - c).norm()) <= 1e-6 * a.norm()
    assert (model.model.embed_tokens.weight.grad[0] == 0).all()  # the padding's id


# ---- patch and unpatch -------------------------------------------------------------------------------------------------------


def state_of(model):
    return {name: set(vars(module)) for name, module in model.named_modules()}


def test_unpatch_restores_everything():
    model = make("Qwen3")
    with torch.no_grad():
        model(IDS, output_hidden_states=True)  # transformers adds its hooks in the first such call
        keys, attention, before = state_of(model), model.config._attn_implementation, model(IDS, attention_mask=MASK).logits
        head = dict(vars(model.lm_head.weight))
        assert hf.unpatch(model) is model and not hf.is_patched(model)
        assert hf.patch(model) is model and hf.is_patched(model) and hf.patch(model, "bf16") is model
        bf16 = model(IDS, attention_mask=MASK).logits
        with hf.patched(model) as inside:
            assert inside is model and not torch.equal(model(IDS, attention_mask=MASK).logits, bf16)
        same(model(IDS, attention_mask=MASK).logits, bf16)
        twin = copy.deepcopy(model)
        same(twin(IDS, attention_mask=MASK).logits, bf16)
        with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
            model.save_pretrained(a)
            hf.unpatch(model)
            model.save_pretrained(b)
            for name in os.listdir(b):
                with open(os.path.join(a, name), "rb") as x, open(os.path.join(b, name), "rb") as y:
                    assert x.read() == y.read(), name
        assert hf.is_patched(twin) and not hf.is_patched(model)
        assert state_of(model) == keys and model.config._attn_implementation == attention and vars(model.lm_head.weight) == head
        same(model(IDS, attention_mask=MASK).logits, before)
        same(hf.unpatch(twin)(IDS, attention_mask=MASK).logits, before)
        try:
            with hf.patched(model):
                raise KeyError
        except KeyError:
            assert not hf.is_patched(model)


def test_copies():
    """A copy is patched, with modules of its own."""
    model = hf.patch(make("Qwen3"), "bf16")
    with torch.no_grad():
        for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert twin.model.norm.forward.args[0] is twin.model.norm and twin.lm_head is twin.model._napier.head
            twin.model.norm.weight.mul_(2)
            assert not torch.equal(twin(IDS).logits, model(IDS).logits)
            twin.model.norm.weight.div_(2)
            same(twin(IDS).logits, model(IDS).logits)
            same(hf.unpatch(twin)(IDS).logits, hf.unpatch(copy.deepcopy(model))(IDS).logits)


class Around(torch.nn.Linear):
    """A layer around another, as LoRA puts it there."""

    def __init__(self, base):
        super().__init__(base.in_features, base.out_features)
        self.base_layer = base

    def forward(self, x):
        return self.base_layer(x) + super().forward(x)


def test_adapters_after_patch():
    """They change the bits, so the next pass refuses them; without them it is as before."""
    model = hf.patch(make("Qwen3"))
    with torch.no_grad():
        before = model(IDS).logits
        for path in ("model.layers.1.self_attn.q_proj", "model.layers.0.mlp.down_proj", "model.layers.1", "lm_head"):
            parent, _, child = path.rpartition(".")
            module = model.get_submodule(path)
            wrapped = Around(module) if isinstance(module, torch.nn.Linear) else torch.nn.Sequential(module)
            for own in (model, copy.deepcopy(model)):
                setattr(own.get_submodule(parent), child, wrapped)
                raises(NotImplementedError, f"{path}: a {type(wrapped).__name__} has taken its place", lambda own=own: own(IDS))
            setattr(model.get_submodule(parent), child, module)
            same(model(IDS).logits, before)
        forward, model.lm_head.forward = model.lm_head.forward, lambda x: x
        raises(NotImplementedError, "lm_head: its forward method has been replaced", lambda: model(IDS))
        model.lm_head.forward = forward
        same(model(IDS).logits, before)


def test_a_sequence_that_is_too_long():
    """One warning for a patched model, of positions and not of padding."""
    model = hf.patch(make("Qwen3", max_position_embeddings=4))
    ids, mask = torch.full((2, 6), 5), torch.tensor([[0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]])
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model(ids, attention_mask=mask)
        assert not caught
        for _ in range(2):
            model(ids)
    (warning,) = caught
    assert str(warning.message).startswith("a sequence of 6 tokens is longer than the 4 positions")


def test_torch_compile():
    """A patched model that is compiled has the same bits and gradients."""
    model = hf.patch(make("Qwen3"))
    compiled = torch.compile(model, backend="eager")
    wanted, got = (m(IDS, attention_mask=MASK, use_cache=False).logits for m in (model, compiled))
    same(got, wanted)
    same(*(torch.autograd.grad(x.square().sum(), model.model.norm.weight)[0] for x in (got, wanted)))
    assert hf.is_patched(compiled)
    raises(NotImplementedError, "patch it before torch.compile", lambda: hf.patch(torch.compile(make("Qwen3"), backend="eager")))


def replaced(path, module):
    """A model with another module at this path."""
    model = make("Qwen3")
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)
    return model


class Adapter(torch.nn.Linear):
    pass


def test_refusals():
    """By name, and nothing has changed after one."""
    gemma = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                                                      num_key_value_heads=1, intermediate_size=16, vocab_size=11,
                                                                      head_dim=8))
    meta = make("Qwen3").to("meta")
    hooked = make("Qwen3")
    hooked.model.layers[0].mlp.forward = lambda x: x
    dropout = make("Llama", attention_dropout=0.1)
    cases = [("model: cannot patch a Gemma2ForCausalLM", gemma), ("model: cannot patch a Linear", torch.nn.Linear(2, 2)),
             ("model: cannot patch a Qwen3Model", make("Qwen3").model),
             ("model.layers.1.self_attn.q_proj: a Adapter", replaced("model.layers.1.self_attn.q_proj", Adapter(48, 64))),
             ("lm_head: a Adapter", replaced("lm_head", Adapter(48, 307, bias=False))),
             ("lm_head.bias", replaced("lm_head", torch.nn.Linear(48, 307))),
             ("model.embed_tokens.weight: it is on meta", meta), ("torch.float64", make("Qwen3", dtype=torch.float64)),
             ("model.layers.0.mlp: the module has a forward", hooked), ("attention_dropout: 0.1", dropout),
             ("hidden_act: 'gelu'", make("Qwen3", hidden_act="gelu")),
             ("rope_type: 'dynamic'", make("Llama", rope_parameters=dict(rope_type="dynamic", rope_theta=1e4, factor=2.0)))]
    for text, model in cases:
        raises(NotImplementedError, text, lambda m=model: hf.patch(m), one_line=True)
        assert not hf.is_patched(model)
    raises(ValueError, "compute: expected 'f32' or 'bf16', got 'f16'", lambda: hf.patch(make("Qwen3"), "f16"))
    model = make("Qwen3")
    raises(ValueError, "model: expected a ForCausalLM", lambda: hf.token_logprobs(model, IDS, MASK, 3))
    hf.patch(model)
    for n in (-1, 27):
        raises(ValueError, "completion_length: expected 0 .. 26", lambda n=n: hf.token_logprobs(model, IDS, MASK, n))
    assert hf.token_logprobs(model, IDS, None, 0).shape == (4, 0)
    raises(ValueError, "attention_mask: expected shape (4, 27)", lambda: model(IDS, attention_mask=MASK[:, 1:]))
    raises(NotImplementedError, "attention_mask: expected [batch, length], got 4 dimensions",
           lambda: model(IDS, attention_mask=torch.ones(4, 1, 27, 27)))
    raises(ValueError, "input_ids, inputs_embeds", lambda: model(IDS, inputs_embeds=torch.ones(4, 27, 48)))
    raises(NotImplementedError, f"{hf._CACHE}: a patched model has no StaticCache",
           lambda: model(IDS, past_key_values=transformers.StaticCache(model.config, max_cache_len=40), use_cache=True))
    for sliding in (make("Qwen2", use_sliding_window=True, sliding_window=26, max_window_layers=1),
                    make("Mistral", sliding_window=26)):
        raises(NotImplementedError, "input_ids: 27 tokens with padding and cache are more than the sliding window of 26",
               lambda m=sliding: hf.patch(m)(IDS))
    model.train().model.layers[0].self_attn.attention_dropout = 0.1
    raises(NotImplementedError, "dropout", lambda: model(IDS))


def test_a_refusal_leaves_a_patched_model_patched():
    model = hf.patch(make("Qwen3"), "bf16")
    wanted = model(IDS).logits

    def check(text, compute="f32"):
        raises((NotImplementedError, ValueError), text, lambda: hf.patch(model, compute))
        raises((NotImplementedError, ValueError), text, lambda: hf.patched(model, compute).__enter__())
        assert hf.is_patched(model)
        same(model(IDS).logits, wanted)

    check("compute", "f64")
    model.config.hidden_act = "gelu"
    check("hidden_act")
    model.config.hidden_act = "silu"
    model.model.layers[1].forward = model.model.layers[1].forward
    check("model.layers.1: the module has a forward")
    del model.model.layers[1].forward
    assert not torch.equal(hf.patch(model, "f32")(IDS).logits, wanted)
    same(hf.patch(model, "bf16")(IDS).logits, wanted)


def test_yarn_without_a_factor():
    """It is the ratio of the lengths, as in transformers."""
    logits = [hf.patch(make("Qwen2", rope_parameters={**YARN, "factor": factor}))(IDS).logits for factor in (None, 8.0, 4.0)]
    same(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])


def test_a_trl_without_the_head():
    """The first pass warns, and later ones do not."""
    hf._warn_of_other_trl.cache_clear()
    model = hf.patch(make("Qwen3"))
    other = {"trl": types.SimpleNamespace(__version__="9.9"), "trl.trainer.utils": types.SimpleNamespace()}
    with unittest.mock.patch.dict("sys.modules", other), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        wanted = model(IDS).logits
        same(model(IDS).logits, wanted)
    said = [w for w in said if w.category is RuntimeWarning]
    assert len(said) == 1 and "TRL 9.9 has no _ChunkedLogProbFunction" in str(said[0].message)
    hf._warn_of_other_trl.cache_clear()


def test_embeddings_in_place_of_ids():
    model = hf.patch(make("Qwen3", dtype=torch.bfloat16), "bf16")
    with torch.no_grad():
        embeds = model.model.embed_tokens(IDS)
        for use_cache in (True, False):
            same(model(inputs_embeds=embeds, attention_mask=MASK, use_cache=use_cache).logits, model(IDS, attention_mask=MASK).logits)
        out = model(IDS, attention_mask=MASK, return_dict=False)
        same(out[0], model(IDS, attention_mask=MASK).logits)


def test_attention_alone():
    """attn_implementation="napier" on models that are not patched, with masks of every kind."""
    for family, changes in (("Qwen3", {}), ("Mistral", dict(sliding_window=5)), ("Llama", {})):
        model = make(family, **changes)
        causal = torch.full((4, 1, 27, 27), -1e9).triu(1)
        for mask in (None, MASK, causal):
            for positions in (None, torch.cat([torch.arange(11), torch.arange(16)])[None]):
                logits = []
                for attention in ("eager", "napier"):
                    model.set_attn_implementation(attention)
                    with torch.no_grad():
                        logits.append(model(IDS, attention_mask=mask, position_ids=positions).logits)
                there = MASK.bool() if mask is MASK else torch.ones_like(MASK).bool()
                assert (logits[0] - logits[1])[there].abs().max() < 1e-4, family


def test_attention_of_encoders_and_decoders():
    """Attention in both directions, and to another text, which may be shorter or longer than the queries."""
    torch.manual_seed(4)
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(
        vocab_size=307, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64, init_std=0.3)).eval()
    for read, written in ((5, 9), (9, 5), (7, 7), (4, 1)):
        for mask in (None, torch.ones(4, read).long(), (torch.arange(read) < torch.tensor([[read], [2], [3], [1]])).long()):
            logits = []
            for attention in ("eager", "napier"):
                model.set_attn_implementation(attention)
                with torch.no_grad():
                    logits.append(model(IDS[:, -read:], attention_mask=mask, decoder_input_ids=IDS[:, -written:]).logits)
            assert (logits[0] - logits[1]).abs().max() < 1e-4 * logits[0].abs().max(), (read, written)


# ---- TRL ---------------------------------------------------------------------------------------------------------------------


def with_trl(test):
    @functools.wraps(test)
    def run():
        try:
            import datasets
            import trl
        except ImportError as error:
            raise Skip(f"no TRL: {error}") from None
        return test(trl, datasets)
    return run


def train(trl, datasets, model, patch_first, compute, **options):
    """Steps of GRPOTrainer. Each call for log-probabilities is compared with napier's scorer. Returns the number of calls."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(ROOT, "tests", "support", "tiny_tokenizer.json"),
                                        eos_token="<|endoftext|>", pad_token="<|endoftext|>", padding_side="left")
    data = datasets.Dataset.from_dict({"prompt": ["the cat", "a dog ran to", "hello", "The quick brown fox"]})
    calls = []
    if patch_first:
        hf.patch(model, compute)
    with tempfile.TemporaryDirectory() as folder:
        arguments = trl.GRPOConfig(output_dir=folder, max_steps=2, per_device_train_batch_size=4, num_generations=2, report_to=[],
                                   max_completion_length=6, use_cpu=True, save_strategy="no", temperature=0.7,
                                   logging_steps=1, learning_rate=1e-2, disable_tqdm=True, **{"bf16": False, **options})
        trainer = trl.GRPOTrainer(model=model, reward_funcs=lambda completion_ids, **_: [float(sum(c)) for c in completion_ids],
                                  args=arguments, train_dataset=data, processing_class=tokenizer)
        if not patch_first:
            hf.patch(model, compute)
        trainer.remove_callback(transformers.PrinterCallback)
        inner = trainer._get_per_token_logps_and_entropies

        def checked(model, input_ids, attention_mask, logits_to_keep, *rest, **more):
            with unittest.mock.patch.object(hf, "_logprobs", side_effect=hf._logprobs) as head:
                found = inner(model, input_ids, attention_mask, logits_to_keep, *rest, **more)
            assert [len(call.args[0]) for call in head.call_args_list] == [attention_mask[:, -logits_to_keep:].sum()]
            prompts = [x[m.bool()] for x, m in zip(input_ids[:, :-logits_to_keep], attention_mask[:, :-logits_to_keep])]
            there = attention_mask[:, -logits_to_keep:].bool()
            responses = [x[m] for x, m in zip(input_ids[:, -logits_to_keep:], there)]
            wanted = scored(ours(trainer.model, compute), prompts, responses, 0.7)
            same(found[0].detach()[there], wanted[0])
            if found[1] is not None:
                same(found[1].detach()[there], wanted[1])
            calls.append(found[0].requires_grad)
            return found

        trainer._get_per_token_logps_and_entropies = checked
        trainer.train()
    return len(calls), [entry for entry in trainer.state.log_history if "loss" in entry]


@with_trl
def test_grpo_trainer(trl, datasets):
    """TRL's trainer, unchanged: every log-probability and entropy is the scorer's, at every step. The head runs for these tokens
    only."""
    counts = []
    for patch_first, compute, options in ((True, "f32", {}), (False, "bf16", dict(num_iterations=2)),
                                          (True, "f32", dict(gradient_checkpointing=True, bf16=True))):
        model = make("Qwen3", spread=0.2)
        count, logs = train(trl, datasets, model, patch_first, compute, **options)
        assert count >= 2 and logs
        counts.append(count)
    return f"{sum(counts)} calls"


@with_trl
def test_trl_s_head(trl, datasets):
    """The head that TRL's trainers add, with all of its outputs, with and without the patch."""
    model = make("Qwen2")
    labels = IDS.masked_fill(MASK == 0, -100)
    labels[:, 1:][MASK[:, :-1] == 0] = -100
    labels[:, :8] = -100
    outputs = "log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1"
    trl.trainer.utils.add_fused_lm_head(model, temperature=0.7, outputs=outputs)

    def run():
        model.zero_grad()
        out = model(IDS, attention_mask=MASK, labels=labels, fused_lm_head=True, position_ids=(MASK.cumsum(1) - 1).clamp(min=0))
        (out.loss + out.entropy.sum()).backward()
        return out, [p.grad.clone() for p in model.parameters()]

    plain, gradients = run()
    hf.patch(model)
    found, patched_gradients = run()
    hf.unpatch(model)
    again, _ = run()
    for name in ("loss", *outputs):
        a, b = getattr(plain, name), getattr(found, name)
        assert (a.double() - b.double()).abs().max() < 1e-4, name
        same(getattr(again, name), a, name)
    for a, b in zip(gradients, patched_gradients):
        assert (a - b).norm() < 1e-4 * a.norm()
    rated = labels[:, 1:] != -100
    with hf.patched(model):
        same(hf.token_logprobs(model, IDS, MASK, 26, 0.7)[rated], found.log_probs[rated])
