"""napier.CausalLM, napier.Tokenizer and napier.lm_eval on a tiny random model: texts and ids, batches, errors. What the numbers
are is for tests/unit (an oracle) and tests/peers (transformers)."""

import fnmatch
import functools
import json
import pathlib
import pickle
import shutil
import sys
import time
import types
import warnings

import docstrings
import numpy as np
import pytest

import napier
from conftest import BF16, bits, refuses
from docstrings import DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, TOKENIZER
from napier import _napier

VOCABULARY = 600
CONFIG = {**docstrings.CONFIG, "vocab_size": VOCABULARY, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2}

have = pytest.mark.skipif(not _napier._has_model, reason="this build has no model")


def weights(dtype=np.float32, seed=0):
    return docstrings.weights(docstrings.shapes(VOCABULARY), dtype, seed)


def write_model(folder, dtype=np.float32, word="F32", seed=0):
    docstrings.write_model(folder, CONFIG, weights(dtype, seed), word)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_model(folder)
    return folder


@pytest.fixture(scope="module")
def model(directory):
    return napier.CausalLM.from_pretrained(directory)


@have
def test_what_it_is(model, directory):
    assert model.info["layers"] == LAYERS and model.info["vocabulary"] == VOCABULARY and model.info["eos"] == 2
    assert model.head().shape == (VOCABULARY, HIDDEN) and "float32" in repr(model)
    kept = pickle.dumps(model)
    assert b"napier._" not in kept  # a private module may move
    again = pickle.loads(kept)
    assert bits(again.forward([5, 6, 7])) == bits(model.forward([5, 6, 7]))
    half = napier.CausalLM(str(directory), compute="bfloat16")
    assert half.info["compute"] == "bfloat16" and bits(half.forward([5])) != bits(model.forward([5]))


@have
@pytest.mark.parametrize(
    "dtype, word, given",
    [(np.float32, "F32", np.float32), (np.float16, "F16", np.float16), (BF16, "BF16", np.float32)],
    ids=["F32", "F16", "BF16"],
)
def test_the_head_is_plain_numpy(tmp_path, dtype, word, given):
    """Other libraries (torch.from_numpy) take NumPy's own dtypes only: bfloat16 comes as float32, exactly."""
    write_model(tmp_path, dtype, word)
    model = napier.CausalLM(tmp_path)
    stored = (np.random.default_rng(0).standard_normal((VOCABULARY, HIDDEN)) * 0.2).astype(dtype)
    head = model.head()
    assert head.dtype == given and head.flags.writeable and bits(head) == bits(stored.astype(given))
    hidden, logits = model.forward([5, 6], hidden=True)
    assert bits(napier.matmul(hidden, head.T)) == bits(napier.matmul(hidden, stored.T)) == bits(logits)


@have
def test_split(tmp_path):
    """compute="split": nearly the logits of float32, its scores are those of its states, and it needs bfloat16."""
    write_model(tmp_path, BF16, "BF16")
    model, wide = napier.CausalLM(tmp_path, compute="split"), napier.CausalLM(tmp_path)
    assert model.info["compute"] == "split"
    hidden, logits = model.forward([5, 6, 7, 8], hidden=True)
    off = abs(logits - wide.forward([5, 6, 7, 8])).max()
    assert 0 < off < 1e-5 * abs(logits).max()
    head = model.head().astype(BF16)
    assert bits(napier.matmul(hidden, head.T, split=True)) == bits(logits)
    wanted = napier.linear_token_logprobs(hidden[1:3], head, [7, 8], split=True).logprobs
    assert bits(model.logprobs_for([5, 6], [7, 8])) == bits(wanted) == bits(napier.token_logprobs(logits[1:3], [7, 8]).logprobs)
    made = model.generate([[5, 6, 7]], max_tokens=5, seed=3)
    assert bits(made.plain_logprobs) == bits(model.logprobs_for([5, 6, 7], made.token_ids))
    other = tmp_path / "f32"
    other.mkdir()
    write_model(other, np.float32, "F32")
    with pytest.raises(ValueError, match="model.embed_tokens.weight: dtype f32, but the compute mode split needs bf16"):
        napier.CausalLM(other, compute="split")


@have
def test_scores_are_the_forwards(model):
    prompts, responses = [[5, 6, 7], [8], [5, 6, 7]], [[9, 10], [], [11, 12, 13, 14]]
    scores = model.score(prompts, responses)
    assert scores.offsets.tolist() == [0, 2, 2, 6] and scores.token_ids.tolist() == [9, 10, 11, 12, 13, 14]
    for b in (0, 2):
        logits = model.forward(prompts[b] + responses[b])[len(prompts[b]) - 1 : -1]
        wanted = napier.token_logprobs(logits, responses[b], entropy=True, argmax=True)
        mine = slice(scores.offsets[b], scores.offsets[b + 1])
        assert bits(scores.logprobs[mine]) == bits(wanted.logprobs) and bits(scores.entropy[mine]) == bits(wanted.entropy)
        assert (scores.argmax[mine] == wanted.argmax).all()
        assert (scores.is_greedy[mine] == (wanted.argmax == responses[b])).all()
        assert bits(model.logprobs_for(prompts[b], responses[b])) == bits(wanted.logprobs)
    logprobs, token_ids, offsets = model.batch_logprobs([[5, 6, 7], [8]], responses, prompt_of=[0, 1, 0])
    assert bits(logprobs) == bits(scores.logprobs) and (offsets == scores.offsets).all()
    assert napier.kl_per_response(logprobs, logprobs, offsets).tolist() == [0, 0, 0]
    hidden, logits = model.forward([5, 6], hidden=True)
    assert hidden.shape == (2, HIDDEN) and bits(napier.matmul(hidden, model.head().T)) == bits(logits)
    assert bits(model.forward([5, 6, 8], [0, 2, 3])[2]) == bits(model.forward([8])[0])
    plan = model.plan(prompts, responses)
    assert plan["tokens"] == 6 and plan["tokens_run"] < plan["tokens_unshared"]


@have
def test_texts(model):
    prompt, response = "the cat", " sat on it."
    assert bits(model.logprobs_for(prompt, response)) == bits(model.logprobs_for(model.encode(prompt), model.encode(response)))
    assert model.decode(model.encode("naïve ☃ 12\n")) == "naïve ☃ 12\n"
    cold, warm = model.logprobs_for(prompt, response), model.logprobs_for(prompt, response, temperature=2.0)
    assert cold.shape == warm.shape and bits(cold) != bits(warm)


@have
def test_judging(model):
    scores, rewards, logprobs = model.judge(["a", "b", "c", "d"], ["x", "y z"], [0.0, 1.0], weights=[1.0, 3.0], criteria=2)
    p = napier.softmax(logprobs)[:, 1].reshape(2, 2)
    np.testing.assert_allclose(scores, p * [1, 3], rtol=1e-6)
    np.testing.assert_allclose(rewards, scores.sum(1), rtol=1e-6)


def with_bos(folder, bos="<|im_start|>"):
    """The id of the BOS that the folder's tokenizer.json adds from now on."""
    document = json.loads(TOKENIZER.read_text())
    id = next(token["id"] for token in document["added_tokens"] if token["content"] == bos)
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "pair": [],
        "special_tokens": {bos: {"ids": [id]}},
        "single": [{"SpecialToken": {"id": bos}}, {"Sequence": {"id": "A"}}],
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return id


@have
def test_prompts_that_are_texts_begin_with_the_bos(directory, tmp_path):
    folder = pathlib.Path(shutil.copytree(directory, tmp_path / "model"))
    bos = with_bos(folder)
    model, bare = napier.CausalLM(folder), napier.CausalLM(folder, add_special_tokens=False)
    tokenizer = model.tokenizer
    text, response = "hello", " world"
    ids, answer = tokenizer.encode(text), tokenizer.encode(response)
    assert tokenizer.encode(text, add_special_tokens=True) == [bos] + ids == tokenizer.encode(text, add_special_tokens="once")
    assert tokenizer.encode("<|im_start|>" + text, add_special_tokens="once") == [bos] + ids
    assert tokenizer.encode("<|im_start|>" + text, add_special_tokens=True) == [bos, bos] + ids
    same = [
        model.logprobs_for(text, response),
        model.logprobs_for("<|im_start|>" + text, response),
        model.logprobs_for([bos] + ids, answer),
        pickle.loads(pickle.dumps(model)).logprobs_for(text, response),
    ]
    assert all(np.array_equal(one, same[0]) for one in same)
    assert np.array_equal(bare.logprobs_for(text, response), model.logprobs_for(ids, answer))
    assert np.array_equal(pickle.loads(pickle.dumps(bare)).logprobs_for(text, response), model.logprobs_for(ids, answer))
    assert len(model.kv(text)) == len(ids) + 1 and len(bare.kv(text)) == len(ids)
    made = [m.generate([p], max_tokens=3, seed=1).token_ids for m, p in ((model, text), (bare, [bos] + ids))]
    assert np.array_equal(*made)


@have
def test_chat_templates(tmp_path):
    shutil.copy(TOKENIZER, tmp_path / "tokenizer.json")
    talk = [{"role": "user", "content": "\u00e9"}]
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {"bos_token": "<s>", "chat_template": "{{ bos_token }}{{ messages | tojson }}{% if add_generation_prompt %}!{% endif %}{{ x }}"}
        )
    )
    tokenizer = napier.Tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.apply_chat_template(talk, x=1) == '<s>[{"role": "user", "content": "\u00e9"}]1'
    assert tokenizer.apply_chat_template(talk, add_generation_prompt=True).endswith("]!")
    assert tokenizer.apply_chat_template(talk, chat_template="{{ messages[0].role }}") == "user"
    (tmp_path / "chat_template.jinja").write_text("{% for m in messages %}{% break %}{% endfor %}{{ raise_exception('no') }}")
    other = napier.Tokenizer(tmp_path / "tokenizer.json")
    refuses(lambda: other.apply_chat_template(talk), ValueError, "^messages: the chat template fails: no")
    refuses(lambda: other.apply_chat_template("x"), TypeError, "^messages: ")
    refuses(lambda: other.apply_chat_template(talk, tools=["x"]), TypeError, "^tools: ")
    alone = napier.Tokenizer(TOKENIZER.read_bytes())
    refuses(lambda: alone.apply_chat_template(talk), ValueError, "^chat_template: the model has none")
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>", "x": {"eos_token": 1}, "bos_token": "<t>"}')
    refuses(
        lambda: napier.Tokenizer(tmp_path / "tokenizer.json").apply_chat_template(talk),
        ValueError,
        "tokenizer_config.json: 'bos_token' stands there twice",
    )


@have
def test_chat_formats():
    chat, talk = napier.Tokenizer.chat, [{"role": "user", "content": " Hi "}]
    assert chat(talk, format="llama2") == "<s>[INST] Hi [/INST]"
    assert "Today Date: 1 May 2026\n" in chat(talk, format="llama3.1", date="1 May 2026")
    assert chat(talk, format="mistral-v0.2") == "<s>[INST]  Hi  [/INST]"
    assert "You are Qwen" in chat(talk, format="qwen2.5") and "You are Qwen" not in chat(talk)
    refuses(lambda: chat(talk, format="qwen"), ValueError, "format")
    refuses(lambda: chat(talk * 2, format="llama2"), ValueError, r"messages\[1\]")


def test_tokenizer():
    tokenizer = napier.Tokenizer(TOKENIZER)
    text = "Hello,  world! don't 123\n\tdöner 漢字 👩‍🚀"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text and isinstance(ids, list) and b"".join(map(tokenizer.token, ids)) == text.encode()
    assert napier.Tokenizer(TOKENIZER.read_bytes()).encode(text) == ids == pickle.loads(pickle.dumps(tokenizer)).encode(text)
    assert tokenizer.decode(ids[-1:])  # half a character is U+FFFD
    special = json.loads(TOKENIZER.read_text())["added_tokens"][0]
    assert tokenizer.encode(special["content"]) == [special["id"]] and tokenizer.is_special(special["id"]) == special["special"]
    assert len(tokenizer.encode(special["content"], plain_special=True)) > 1 and len(tokenizer) > special["id"]
    assert tokenizer.id_of(special["content"]) == special["id"] and tokenizer.id_of("no such token") is None
    assert tokenizer.token(10**6) is None
    chat = napier.Tokenizer.chat([{"role": "user", "content": "Hi"}])
    assert chat == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


@have
def test_chat():
    """What a conversation has beside texts is rendered, or refused by name; tests/peers compares with the template."""
    chat = functools.partial(napier.Tokenizer.chat, add_generation_prompt=False)
    user, call = {"role": "user", "content": "q"}, {"name": "f", "arguments": {"x": 1.0, "é": [None]}}
    block = '<tool_call>\n{"name": "f", "arguments": {"x": 1.0, "é": [null]}}\n</tool_call>'
    turn = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n%s\n</think>\n\n%s<|im_end|>\n"
    assert chat([user, {"role": "assistant", "content": "a", "reasoning_content": "hm"}]) == turn % ("hm", "a")
    for calls in [call], [{"id": "1", "type": "function", "function": call}]:
        assert chat([user, {"role": "assistant", "content": None, "tool_calls": calls}]) == turn % ("", block)
    text = chat([user], tools=[{"a": 1}, '{"b":2}'])
    assert '<tools>\n{"a": 1}\n{"b":2}\n</tools>' in text and text.endswith("<|im_start|>user\nq<|im_end|>\n")
    assert chat([{"role": "tool", "content": "1", "tool_call_id": "x", "name": "f"}]) == chat([{"role": "tool", "content": "1"}])
    for message, kind, word in [
        ({**user, "thinking": "hm"}, ValueError, r"messages\[0\]: 'thinking'"),
        ({**user, "reasoning_content": "hm"}, ValueError, "reasoning of a user"),
        ({**user, "tool_calls": [call]}, ValueError, "tool calls of a user"),
        ({"role": "user"}, TypeError, r"messages\[0\]: content"),
        ({"role": "user", "content": [{"type": "text", "text": "q"}]}, TypeError, "content"),
    ]:
        refuses(lambda: chat([message]), kind, word)


@have
def test_progress_and_errors(model, directory, tmp_path):
    seen = []
    model.batch_logprobs([[5]], [[6]], progress=lambda stage, done: seen.append((stage, done)) and False)
    assert seen and seen[-1][0] == "scoring"

    class Bar:
        def show(self, stage, share):
            shown.append(stage)

        def close(self):
            pass

    shown = []
    napier._napier._set_progress(Bar)  # as napier.progress does
    try:
        for _ in range(5):
            time.sleep(0.11)  # a context asks ten times a second
            model.batch_logprobs([[5]], [[6] * 20], progress=lambda stage, done: False)
        assert not shown  # not a second time
        count = 1  # the first question may come before the first stage, and a short call asks once
        while not shown and count < 1 << 14:
            model.batch_logprobs([[5]] * count, [[6] * 20] * count)
            count *= 4
        assert shown and not any(stage.startswith("step") for stage in shown)
    finally:
        napier._napier._set_progress(None)

    def fail(stage, done):
        raise KeyError("mine")

    for refused in [
        (lambda: model.batch_logprobs([[5]], [[6]], progress=lambda *_: True), RuntimeError, "cancel"),
        (lambda: model.batch_logprobs([[5]], [[6]], progress=fail), KeyError, "mine"),
        (lambda: model.batch_logprobs([[5]], [[VOCABULARY]]), ValueError, str(VOCABULARY)),
        (lambda: model.batch_logprobs([[]], [[6]]), ValueError, "prompt"),
        (lambda: model.batch_logprobs([[5]], [[6], [7]]), ValueError, "^prompts: 1 for 2"),
        (lambda: model.batch_logprobs("a", "b"), TypeError, "^prompts, responses"),
        (lambda: model.batch_logprobs([[0.5]], [[6]]), TypeError, "^prompts: expected"),
        (lambda: model.logprobs_for([5], [6], temperature=0), ValueError, "temperature"),
        (lambda: napier.CausalLM(tmp_path), OSError, "config.json"),
        (lambda: napier.CausalLM(directory, compute="float16"), ValueError, "^compute"),
        (lambda: napier.Tokenizer(tmp_path / "none"), OSError, "none"),
        (lambda: napier.Tokenizer(b"{"), ValueError, "Tokenizer"),
    ]:
        refuses(*refused)
    assert len(model.batch_logprobs([[]], [[6]], prefix_token=1).logprobs) == 1


@have
def test_a_sequence_that_is_too_long(directory):
    """One warning for each model, of what runs beyond its 64 positions: the last token that is rated does not run."""
    some = list(range(5, 45))
    for call, tokens in [
        (lambda m, n: m.score([some], [some[: n - 40]]), 66),
        (lambda m, n: m.logprobs_for(some, some[: n - 40]), 66),
        (lambda m, n: m.batch_logprobs([[5], some], [some[: n - 40]], prompt_of=[1]), 66),
        (lambda m, n: m.plan([some], [some[: n - 40]]), 66),
        (lambda m, n: m.kv((some + some)[:n]), 65),
        (lambda m, n: m.forward((some + some)[:n]), 65),
        (lambda m, n: m.forward([5, 6] + (some + some)[:n], offsets=[0, 2, n + 2]), 65),
        (lambda m, n: m.judge([some + some[: n - 41]], [[5]], [1.0]), 66),
        (lambda m, n: m.generate([some, [5]], samples=2, max_tokens=n - 40, stop=[]), 66),
    ]:
        model = napier.CausalLM(directory)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call(model, tokens - 1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(model, tokens)
            call(model, tokens + 1)
        (warning,) = caught
        assert str(warning.message).startswith("a sequence of 65 tokens is longer than the 64 positions")


def test_a_name_of_a_hub(monkeypatch):
    """Without huggingface_hub nothing is downloaded: the error has the two commands."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for name, hub in [("Qwen3-0.6Z", "OWNER/Qwen3-0.6Z"), ("Qwen/Qwen3-0.6Z", "Qwen/Qwen3-0.6Z"), ("./Qwen3-0.6Z", "OWNER/Qwen3-0.6Z")]:
        for load in (napier.CausalLM.from_pretrained, napier.CausalLM, napier.Tokenizer.from_pretrained):
            refuses(
                lambda load=load, name=name: load(name),
                FileNotFoundError,
                f"^{name}: no such folder.*\n.*pip install huggingface_hub\n.*hf download {hub} --local-dir Qwen3-0.6Z$",
            )
    refuses(lambda: napier.CausalLM(__file__), ValueError, "no GGUF file; a model is a folder with config.json")


def fake_hub(monkeypatch, repository, cache):
    """A huggingface_hub that fetches from a folder; returns the list of the files that were asked for."""
    asked = []

    def snapshot_download(name, *, allow_patterns):
        if name != "Owner/Model-0.1":
            raise OSError(f"404: {name}")
        for file in sorted(repository.rglob("*")):
            inside = file.relative_to(repository).as_posix()
            if file.is_file() and any(fnmatch.fnmatch(inside, pattern) for pattern in allow_patterns):
                asked.append(inside)
                (cache / inside).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, cache / inside)
        return str(cache)

    monkeypatch.setitem(sys.modules, "huggingface_hub", types.SimpleNamespace(snapshot_download=snapshot_download))
    return asked


@have
def test_a_hub_fetches_what_is_read(monkeypatch, tmp_path, directory, model):
    """OWNER/NAME comes through huggingface_hub: the files that Napier reads, and no others."""
    repository = tmp_path / "repository"
    shutil.copytree(directory, repository)
    for other in ("README.md", "pytorch_model.bin", "consolidated.safetensors", "onnx/model.onnx", "original/params.json"):
        (repository / other).parent.mkdir(exist_ok=True)
        (repository / other).write_text("large")
    asked = fake_hub(monkeypatch, repository, tmp_path / "cache")
    fetched = napier.CausalLM.from_pretrained("Owner/Model-0.1")
    assert sorted(asked) == sorted(["config.json", "model.safetensors", "tokenizer.json"])
    assert bits(fetched.forward([5, 6, 7])) == bits(model.forward([5, 6, 7])) and fetched.directory == str(tmp_path / "cache")
    assert bits(pickle.loads(pickle.dumps(fetched)).forward([5])) == bits(model.forward([5]))
    asked.clear()
    assert napier.Tokenizer.from_pretrained("Owner/Model-0.1").encode("a b") == model.encode("a b") and asked == ["tokenizer.json"]
    refuses(lambda: napier.CausalLM("Owner/Other"), FileNotFoundError, "^Owner/Other: no such folder.*404: Owner/Other$")


@have
def test_a_refused_tokenizer_leaves_ids(tmp_path, model):
    """A tokenizer.json that is refused: what takes ids works, and what takes texts says why it does not."""
    write_model(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Other"}}')
    refused = napier.CausalLM.from_pretrained(tmp_path)
    assert bits(refused.logprobs_for([5, 6], [7])) == bits(model.logprobs_for([5, 6], [7]))
    assert refused.generate([[5, 6]], max_tokens=3).token_ids.tolist() == model.generate([[5, 6]], max_tokens=3).token_ids.tolist()
    for call in (
        lambda: refused.tokenizer,
        lambda: refused.encode("a"),
        lambda: refused.decode([5]),
        lambda: refused.logprobs_for("a", "b"),
        lambda: refused.generate([[5]], texts=True),
    ):
        refuses(call, (ValueError, NotImplementedError, RuntimeError), "tokenizer.json")
    refused.tokenizer = model.tokenizer  # another one
    assert refused.encode("a") == model.encode("a")


@have
def test_lm_eval(model):
    """The harness's calls, by a list of requests as it makes them."""
    from napier.lm_eval import NapierLM

    lm = NapierLM(model)
    end = model.tokenizer.id_of("<|endoftext|>")  # the tokenizer's, whatever config.json says
    assert lm.tok_encode("a b") == model.encode("a b") and lm.eot_token_id == lm.prefix_token_id == end
    pairs = [([5, 6, 7], [9, 10]), ([5, 6, 7], [11]), ([], [9, 9, 9])]
    requests = [(("c", "t"), context, continuation) for context, continuation in pairs]
    results = lm._loglikelihood_tokens(requests)
    for (context, continuation), (logprob, greedy) in zip(pairs, results):
        scores = model.score([context or [end]], [continuation])
        assert logprob == scores.logprobs.sum(dtype="f8") and greedy == scores.is_greedy.all()
    lm.max_length = 4  # the context loses its beginning
    assert lm._loglikelihood_tokens([(("c", "t"), list(range(20, 30)), [5, 6])]) == lm._loglikelihood_tokens(
        [(("c", "t"), [27, 28, 29], [5, 6])]
    )
    lm.max_length = 64
    (whole,) = lm.loglikelihood_rolling([types.SimpleNamespace(args=("the cat sat",))])
    ids = model.encode("the cat sat")
    assert whole == model.logprobs_for([end], ids).sum(dtype="f8")
    lm.max_length = 3
    windows = list(lm._windows(list(range(10, 18))))
    assert [x for _, part in windows for x in part] == list(range(10, 18))
    assert all(len(a) + len(b) <= 4 and a for a, b in windows)
    assert lm.generate_until([]) == []


@have
def test_decode_takes_the_ids_of_generate(model):
    rows = model.info["vocabulary"]
    bare = next(id for id in range(rows) if model.tokenizer.token(id) is None)
    ids = model.encode("a b")
    assert model.decode([*ids, bare]) == model.decode(ids) == "a b" and model.decode([bare]) == ""
    for skip in (False, True):
        assert model.tokenizer.decode([bare, *ids, rows], skip_special=skip) == "a b"
        assert model.tokenizer.decode_bytes([bare, *ids, rows], skip_special=skip) == b"a b"
        refuses(lambda: model.decode([rows], skip_special=skip), ValueError, "ids")
        refuses(lambda: model.decode([-1], skip_special=skip), ValueError, "ids")


@have
def test_lm_eval_refuses_an_empty_continuation(model):
    from napier.lm_eval import NapierLM

    refuses(lambda: NapierLM(model)._loglikelihood_tokens([(("Ans", "wer"), [5, 6], [])]), ValueError, "'Ans', 'wer'.*no token of its own")


@have
def test_tensors_that_the_config_does_not_describe(tmp_path):
    """In a file, as in a state dict: refused unless they are provably without effect."""
    write_model(tmp_path)
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header, body = json.loads(whole[8 : 8 + size]), whole[8 + size :]
    begin, end = header["model.embed_tokens.weight"]["data_offsets"]
    embedding, shape = body[begin:end], header["model.embed_tokens.weight"]["shape"]

    def load(name, shape, data):
        more = {**header, name: {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}}
        text = json.dumps(more).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + body + data)
        return napier.CausalLM(tmp_path)

    for name in (
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "model.layers.2.input_layernorm.weight",
    ):
        refuses(lambda: load(name, [1], bytes(4)), ValueError, "the config describes no such tensor")
    refuses(lambda: load("lm_head.weight", shape, bytes(len(embedding))), ValueError, "lm_head.weight: not equal")
    load("lm_head.weight", shape, embedding)
    load("model.layers.0.self_attn.rotary_emb.inv_freq", [1], bytes(4))


@have
def test_lm_eval_generates(directory):
    from napier.lm_eval import NapierLM

    lm = NapierLM(directory)
    ask = lambda context, **how: types.SimpleNamespace(args=(context, how))
    free = lm.generate_until([ask("the cat", max_gen_toks=30)])[0]
    ids = lm.model.generate(["the cat"], max_tokens=30, temperature=0, stop=[lm.eot_token_id, 2])
    assert free == lm.model.decode(ids.token_ids, skip_special=True) and len(free) > 3
    stop = free[2:4]
    assert lm.generate_until([ask("the cat", until=[stop, "zzz"], max_gen_toks=30)])[0] == free[: free.index(stop)]
    assert lm.generate_until([ask("the cat", until=stop, do_sample=False, max_new_tokens=30)])[0] == free[: free.index(stop)]
    sampled = {"do_sample": True, "temperature": 1.5, "max_gen_toks": 12, "top_k": 50}
    asked = [ask("a", **sampled), ask("the cat", max_gen_toks=30), ask("a", **sampled), ask("b", **sampled), ask("", **sampled)]
    made = lm.generate_until(asked)
    assert made[1] == free and made[0] != made[2]  # equal requests are different samples
    lm._TOGETHER = 1
    assert lm.generate_until(asked[::-1]) == [made[4], made[3], made[0], free, made[2]]  # whatever comes before
    lm.max_length = 12  # the context loses its beginning
    assert lm.generate_until([ask("abcdefgh the cat", max_gen_toks=6)]) == lm.generate_until(
        [ask(lm.model.decode(lm.tok_encode("abcdefgh the cat")[-6:]), max_gen_toks=6)]
    )
    for how, word in (({"max_gen_toks": 12}, "max_gen_toks"), ({"do_sample": True}, "do_sample"), ({"num_beams": 4}, "num_beams")):
        refuses(lambda: lm.generate_until([ask("a", **how)]), ValueError, word)


@have
def test_lm_eval_s_arguments(directory, tmp_path):
    from napier.lm_eval import NapierLM

    for name, value in (("dtype", "float32"), ("max_lenght", 512), ("trust_remote_code", True)):
        with pytest.raises(TypeError, match=f"^{name}: not an argument of the model napier, whose are pretrained, compute"):
            NapierLM(directory, **{name: value})
    refuses(lambda: NapierLM(directory, max_length=0), ValueError, "^max_length: expected 1 or more, got 0")
    lm = NapierLM(str(directory), compute="bfloat16", max_length="7", prefix_token_id="9", batch_size=1, device="cuda:0")
    assert (lm.model.info["compute"], lm.max_length, lm.prefix_token_id) == ("bfloat16", 7, 9)
    for file in directory.iterdir():
        shutil.copy(file, tmp_path)

    def tokens(name, content):
        (tmp_path / name).write_text(json.dumps(content))
        lm = NapierLM(tmp_path)
        return lm.prefix_token_id, lm.eot_token_id

    end, start = (json.loads(TOKENIZER.read_text())["added_tokens"][i] for i in (2, 1))
    assert tokens("tokenizer_config.json", {"bos_token": None, "eos_token": end["content"]}) == (end["id"], end["id"])
    assert tokens("tokenizer_config.json", {"bos_token": start, "eos_token": end["content"]}) == (start["id"], end["id"])
    assert tokens("special_tokens_map.json", {"bos_token": end["content"]}) == (end["id"], end["id"])
    with pytest.raises(ValueError, match="^pretrained: the eos_token of .*, 'nothing', is not in its tokenizer.json"):
        tokens("tokenizer_config.json", {"eos_token": "nothing"})
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "a", "bos_token": "b"}')
    with pytest.raises(ValueError, match="special_tokens_map.json: 'bos_token' stands there twice"):
        NapierLM(tmp_path)
    (tmp_path / "special_tokens_map.json").unlink()
    with pytest.raises(ValueError, match="^prefix_token_id: .*neither bos_token nor eos_token"):
        tokens("tokenizer_config.json", {"eos_token": None})
    assert NapierLM(tmp_path, prefix_token_id=3).prefix_token_id == 3
    (tmp_path / "tokenizer.json").unlink()
    refuses(lambda: NapierLM(tmp_path), ValueError, "^pretrained: .* has no tokenizer.json")


@have
@pytest.mark.parametrize("dtype, word", [(np.float32, "F32"), (np.float16, "F16"), (BF16, "BF16")], ids=["F32", "F16", "BF16"])
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_weights_in_memory(tmp_path, dtype, word, compute):
    write_model(tmp_path, dtype, word)
    filed = napier.CausalLM(tmp_path, compute=compute)
    mine = weights(dtype)
    model = napier.CausalLM.from_state_dict(CONFIG, mine, tokenizer=tmp_path / "tokenizer.json", compute=compute)
    assert model.info == filed.info and repr(model).startswith("<CausalLM ") and model.directory is None
    assert bits(model.forward([5, 6, 7])) == bits(filed.forward([5, 6, 7]))
    assert bits(model.logprobs_for("a b", " c")) == bits(filed.logprobs_for("a b", " c"))
    (tmp_path / "next").mkdir()
    write_model(tmp_path / "next", dtype, word, seed=1)
    stepped = napier.CausalLM(tmp_path / "next", compute=compute)
    for name, x in weights(dtype, seed=1).items():  # what an optimizer does, in place
        mine[name][...] = x
    model.update()
    assert bits(model.forward([5, 6, 7])) == bits(stepped.forward([5, 6, 7])) != bits(filed.forward([5, 6, 7]))
    model.update(weights(dtype))  # nobody but the model keeps these
    assert bits(model.forward([5, 6, 7])) == bits(filed.forward([5, 6, 7]))
    filed.update(mine)
    assert bits(filed.forward([5, 6, 7])) == bits(stepped.forward([5, 6, 7]))
    for changed in (model, filed):
        refuses(lambda: pickle.dumps(changed), TypeError, "weights in memory cannot be pickled")


def family(kind, **changes):
    """The config and weights of another family, made of those above."""
    config = {**CONFIG, "architectures": [kind], "model_type": kind[: kind.index("For")].lower(), **changes}
    tensors = {name: x for name, x in weights().items() if config["model_type"] == "qwen3" or "_norm." not in name}
    rng = np.random.default_rng(7)
    if config["model_type"] == "qwen2":
        for i in range(LAYERS):
            for name, size in (("q", HEADS * DIM), ("k", KV_HEADS * DIM), ("v", KV_HEADS * DIM)):
                tensors[f"model.layers.{i}.self_attn.{name}_proj.bias"] = rng.standard_normal(size).astype(np.float32)
    if kind.endswith("Classification"):
        tensors["score.weight"] = rng.standard_normal((config.get("num_labels", 2), HIDDEN)).astype(np.float32)
    return config, tensors


@have
@pytest.mark.parametrize("name", ["Qwen3", "Qwen2", "Llama", "Mistral"])
def test_families(name):
    model = napier.CausalLM.from_state_dict(*family(name + "ForCausalLM", sliding_window=None))
    assert (model.info["family"], model.info["labels"]) == (name.lower(), 0) and name.lower() in repr(model)
    made = model.generate([[5, 6, 7]], max_tokens=4, seed=1)
    assert bits(model.batch_logprobs([[5, 6, 7]], [made.token_ids]).logprobs) == bits(made.logprobs)
    refuses(lambda: model.rewards([[5, 6]]), ValueError, "gives no rewards")
    judge = napier.CausalLM.from_state_dict(*family(name + "ForSequenceClassification", num_labels=3, sliding_window=None))
    assert judge.info["labels"] == 3 and judge.head().shape == (3, HIDDEN)
    kept = judge.kv([5, 6])
    rewards = judge.rewards([[5, 6, 7], [5, 6, 9]], [[8], [], [9, 4]], prompt_of=[0, 1, 0], kvs=[kept])
    assert rewards.shape == (3, 3) and rewards.dtype == np.float32
    for row, ids in zip(rewards, ([5, 6, 7, 8], [5, 6, 9], [5, 6, 7, 9, 4])):
        assert bits(row) == bits(judge.forward(ids)[-1]) == bits(judge.rewards([ids])[0])
    for call in (lambda: judge.logprobs_for([5], [6]), lambda: judge.generate([[5]])):
        refuses(call, ValueError, "a reward model .ForSequenceClassification, 3 labels. has no probabilities of tokens")


@have
def test_turns():
    """Keys and values of generated sequences, and of what follows them: a call that goes on with them has the same bits."""
    model = napier.CausalLM.from_state_dict(*family("Qwen3ForCausalLM"))
    options = {"samples": 2, "max_tokens": 6, "stop": []}
    kept = {}
    first = model.generate([[5, 6, 7], [8, 9]], on_kv=kept.__setitem__, **options)
    assert [len(kept[i]) for i in range(4)] == [8, 8, 7, 7]
    refuses(lambda: model.generate([[5]], on_kv=lambda b: None, **options), TypeError, "positional argument")
    prompt = [8, 9, *first.token_ids[12:18], 1, 2]
    more = model.kv(prompt[7:9], after=kept[2])
    assert len(more) == 9 and more.nbytes > kept[2].nbytes
    wanted = model.generate([prompt], **options)
    for kvs in ([kept[2]], [more], [*kept.values(), more]):
        made = model.generate([prompt], kvs=kvs, **options)
        assert made.token_ids.tolist() == wanted.token_ids.tolist() and bits(made.plain_logprobs) == bits(wanted.plain_logprobs)
    refuses(
        lambda: napier.CausalLM.from_state_dict(*family("Qwen3ForCausalLM")).generate([[5]], kvs=[more]), ValueError, "not of this model"
    )


@have
def test_arrivals():
    """Prompts that join a call while it runs: each has the bits of a call of its own."""
    model = napier.CausalLM.from_state_dict(*family("Qwen3ForCausalLM"))
    prompts = [[5, 6, 7], [8, 9], [10] * 30, [5, 6, 8]]
    options = {"samples": 2, "max_tokens": 9, "stop": [], "seed": 3}
    wanted = [model.generate([p], numbers=[10 * i, 10 * i + 1], **options) for i, p in enumerate(prompts)]
    steps = iter([[], [1], [], [2, 3]])

    def arrive():
        return [(prompts[i], [10 * i, 10 * i + 1]) for i in next(steps, [])]

    made = model.generate(prompts[:1], numbers=[0, 1], arrivals=(arrive, 6, 30), on_kv=lambda *_: None, **options)
    assert made.token_ids.tolist() == np.concatenate([w.token_ids for w in wanted]).tolist() and len(made.offsets) == 9
    assert bits(made.logprobs) == bits(np.concatenate([w.logprobs for w in wanted]))
    for more, reason in (([8] * 31, "where 1 to 30 of 60"), ([], "prompt 1 has ids 3 .. 3"), ([10**6], "prompt_ids.3. is 1000000")):
        refuses(lambda: model.generate(prompts[:1], arrivals=(lambda: [(more, [0, 0])], 2, 30), **options), ValueError, reason)
    refuses(lambda: model.generate(prompts[:1], arrivals=(lambda: 1 / 0, 2, 30), **options), ZeroDivisionError, "division")


@have
def test_experts():
    """One tensor for each expert, as in files, and those of all experts together, as transformers 5 has them in memory."""
    experts, width, rng = 4, 20, np.random.default_rng(3)
    config = {
        **CONFIG,
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": experts,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": width,
        "mlp_only_layers": [0],
        "norm_topk_prob": True,
    }
    common = {name: x for name, x in weights().items() if "layers.1.mlp" not in name}
    common["model.layers.1.mlp.gate.weight"] = rng.standard_normal((experts, HIDDEN)).astype(np.float32)
    gate_up = rng.standard_normal((experts, 2 * width, HIDDEN)).astype(np.float32)
    down = rng.standard_normal((experts, HIDDEN, width)).astype(np.float32)
    at = "model.layers.1.mlp.experts."
    apart = {
        f"{at}{e}.{name}_proj.weight": np.ascontiguousarray(x)
        for e in range(experts)
        for name, x in (("gate", gate_up[e, :width]), ("up", gate_up[e, width:]), ("down", down[e]))
    }
    model = napier.CausalLM.from_state_dict(config, {**common, at + "gate_up_proj": gate_up, at + "down_proj": down})
    assert (model.info["experts"], model.info["experts_per_token"], model.info["expert_intermediate"]) == (4, 2, 20)
    again = napier.CausalLM.from_state_dict(config, {**common, **apart})
    assert bits(model.forward([5, 6, 7])) == bits(again.forward([5, 6, 7]))
    made = model.generate([[5, 6, 7], [8]], samples=3, max_tokens=6, seed=1)
    responses = np.split(made.token_ids, made.offsets[1:-1])
    assert bits(again.batch_logprobs([[5, 6, 7], [8]], responses, prompt_of=np.arange(6) // 3).logprobs) == bits(made.logprobs)


@have
def test_a_window_is_a_limit():
    model = napier.CausalLM.from_state_dict(*family("MistralForCausalLM", sliding_window=8))
    assert model.info["positions"] == 8 and model.forward(range(8)).shape == (8, VOCABULARY)
    for call in (
        lambda: model.forward(range(9)),
        lambda: model.logprobs_for([1] * 5, [2] * 5),
        lambda: model.kv([3] * 9),
        lambda: model.generate([[1, 2, 3]], max_tokens=7),
    ):
        refuses(call, NotImplementedError, "a sequence of 9 tokens is longer than the model's sliding_window of 8")


@have
def test_an_update_and_other_calls(directory):
    mine = weights()
    model = napier.CausalLM.from_state_dict(json.dumps(CONFIG), mine)
    kept = model.kv([5, 6, 7])
    wanted = bits(model.forward([5, 6, 7]))

    def update(*_):
        model.update()

    refuses(lambda: model.batch_logprobs([[5]], [[6]], progress=update), RuntimeError, "^update: another call")
    refuses(lambda: model.generate([[5]], on_token=update), RuntimeError, "^update: another call")
    model.update()
    for call in (lambda: model.score([[5, 6, 7]], [[8]], kvs=[kept]), lambda: model.generate([[5, 6, 7]], kvs=[kept])):
        refuses(call, ValueError, "kvs\\[0\\].* stale")
    assert len(model.kv([5, 6, 7])) == len(kept) == 3
    some = dict(mine)
    last = list(some)[-1]
    wide = np.zeros((DIM, 2), np.float32)[:, 0]
    for change, error, says in [
        ({last: None}, TypeError, last),
        ({last: np.zeros(DIM + 1, np.float32)}, ValueError, f"{last}: its shape is"),
        ({last: np.zeros(DIM, np.float16)}, ValueError, f"{last}: dtype f16"),
        ({last: np.zeros(DIM)}, NotImplementedError, f"{last}: dtype f64"),
        ({last: np.zeros(DIM, np.int32)}, ValueError, f"{last}: expected float32, float16"),
        ({last: np.zeros(DIM, ">f4")}, ValueError, f"{last}: expected float32, float16"),
        ({last: wide}, ValueError, f"{last}: not contiguous"),
        ({"extra.weight": some[last]}, ValueError, "extra.weight: the config describes no such tensor"),
        ({"lm_head.weight": some["model.embed_tokens.weight"] + 1}, ValueError, "lm_head.weight: not equal"),
    ]:
        refuses(lambda: model.update({**some, **change}), error, says)
    del some[last]
    refuses(lambda: model.update(some), ValueError, f"{last}: not among")
    refuses(lambda: model.update({}), ValueError, "^state_dict: empty")
    assert bits(model.forward([5, 6, 7])) == wanted  # all or nothing
    refuses(lambda: model.encode("a"), ValueError, "has no tokenizer")
    from napier.lm_eval import NapierLM

    refuses(lambda: NapierLM(model), ValueError, "^pretrained: this model has no tokenizer.json")
    texts = napier.CausalLM.from_state_dict(CONFIG, mine, tokenizer=napier.Tokenizer(TOKENIZER))
    assert NapierLM(texts, prefix_token_id=3).prefix_token_id == 3 and NapierLM(texts).tok_encode("a b") == texts.encode("a b")
    refuses(lambda: model.decode([5]), ValueError, "has no tokenizer")
    refuses(lambda: napier.CausalLM.from_state_dict("{", mine), ValueError, "config")
    refuses(lambda: napier.CausalLM.from_state_dict({"model_type": "gpt2"}, mine), NotImplementedError, "gpt2")


@pytest.mark.skipif(_napier._has_model, reason="this build has the model")
def test_a_build_without_says_so():
    refuses(lambda: napier.Tokenizer("tokenizer.json"), NotImplementedError, "no tokenizer and no model")
    refuses(lambda: napier.CausalLM("."), NotImplementedError)


@have
def test_generate(model, directory):
    prompts = [[5, 6, 7], list(range(3, 40)), "the end"]
    told = []
    made = model.generate(
        prompts, samples=4, max_tokens=9, stop=[11, 90], temperature=0.8, seed=7, on_token=lambda *token: told.append(token) and False
    )
    lengths = np.diff(made.offsets)
    assert len(lengths) == 12 and lengths.min() >= 1 and lengths.max() <= 9 and len(told) == made.offsets[-1]
    assert (made.stopped | (lengths == 9)).all()
    responses = [made.token_ids[a:b] for a, b in zip(made.offsets, made.offsets[1:])]
    scored = model.batch_logprobs(prompts, responses, prompt_of=np.arange(12) // 4, temperature=0.8)
    assert bits(scored.logprobs) == bits(made.plain_logprobs) == bits(made.logprobs)  # sampled = scored
    little = napier.CausalLM(directory, memory=9 << 20)  # another schedule, and one sequence by itself
    again = little.generate(prompts, samples=4, max_tokens=9, stop=[11, 90], temperature=0.8, seed=7)
    assert all(bits(a) == bits(b) for a, b in zip(again[:5], made))
    alone = model.generate(prompts[1:2], max_tokens=9, stop=[11, 90], temperature=0.8, seed=7, numbers=[6])
    assert bits(alone.token_ids) == bits(responses[6])
    early = model.generate(
        prompts, samples=4, max_tokens=9, stop=[], temperature=0.8, seed=7, on_token=lambda b, i, *_: "end" if i == b % 3 else None
    )
    assert np.diff(early.offsets).tolist() == [b % 3 + 1 for b in range(12)] and early.token_ids[0] == made.token_ids[0]
    greedy = model.generate(prompts[:1], max_tokens=5, stop=[], temperature=0)
    assert greedy.token_ids[0] == model.forward(prompts[0])[-1].argmax() and not greedy.logprobs.any()
    assert model.generate([], max_tokens=3).offsets.tolist() == [0]
    kept = [model.kv(prompts[1][:30]), model.kv("the")]
    assert len(kept[0]) == 30 and kept[0].nbytes > 0
    again = model.generate(prompts, samples=4, max_tokens=9, stop=[11, 90], temperature=0.8, seed=7, kvs=kept)
    assert all(bits(a) == bits(b) for a, b in zip(again[:5], made))
    given = prompts, responses
    again = model.score(*given, prompt_of=np.arange(12) // 4, temperature=0.8, kvs=kept)
    assert bits(again.logprobs) == bits(scored.logprobs)
    plans = [model.plan(*given, prompt_of=np.arange(12) // 4, kvs=kvs)["tokens_run"] for kvs in ([], kept)]
    assert plans[1] <= plans[0] - 30
    refuses(lambda: little.score([[1]], [[2]], kvs=kept), ValueError, "not of this model")
    filtered = model.generate(prompts, max_tokens=30, top_k=5, top_p=0.9, min_p=0.01, repetition_penalty=1.2, stop=[])
    assert (filtered.logprobs > filtered.plain_logprobs).any()


@have
def test_generate_texts(model, directory):
    prompts, told = [[5, 6, 7], "the end"], {}

    def on_text(sequence, text, ended):
        told.setdefault(sequence, []).append(text)
        assert text or ended
        assert sequence not in over
        over.update({sequence} if ended else ())

    over = set()
    options = {"samples": 6, "temperature": 1.3, "seed": 5, "max_tokens": 40}
    free = model.generate(prompts, stop=[], texts=True, entropy=True, **options)
    whole = [model.decode(free.token_ids[a:b], skip_special=True) for a, b in zip(free.offsets, free.offsets[1:])]
    assert free.texts == whole and free.stop == [None] * 12 and not free.stopped.any()
    scores = model.score(
        prompts, [free.token_ids[a:b] for a, b in zip(free.offsets, free.offsets[1:])], prompt_of=np.arange(12) // 6, temperature=1.3
    )
    assert bits(scores.entropy) == bits(free.entropy) and bits(scores.logprobs) == bits(free.plain_logprobs)
    stops = ["\ufffe", *(text[4:6] for text in whole if "\ufffd" not in text[4:6])][:4]
    made = model.generate(prompts, stop=[11, *stops], texts=True, on_text=on_text, **options)
    assert ["".join(told[i]) for i in range(12)] == made.texts and len(over) == 12
    assert any(s in stops for s in made.stop) and bits(made.stopped) == bits(np.array([s is not None for s in made.stop]))
    for text, full, stop, a, b, at in zip(made.texts, whole, made.stop, made.offsets, made.offsets[1:], free.offsets):
        assert bits(made.token_ids[a:b]) == bits(free.token_ids[at : at + b - a]) and full.startswith(text.rstrip("\ufffd"))
        assert not isinstance(stop, str) or full[len(text) :].startswith(stop)
        assert stop != 11 or made.token_ids[b - 1] == 11
    least = model.generate(prompts, stop=list(range(300)), min_tokens=7, **options)
    assert np.diff(least.offsets).min() > 7 and (least.token_ids[:7] >= 300).all()
    texts_only = model.generate([[5]], stop=["zzz"], temperature=0, max_tokens=60)  # the end-of-text token stops too
    eos_only = model.generate([[5]], temperature=0, max_tokens=60)
    assert bits(texts_only.token_ids) == bits(eos_only.token_ids) and texts_only.stop == eos_only.stop
    refuses(lambda: model.generate([[1]], stop="x"), TypeError, "stop")
    refuses(lambda: model.generate([[1]], stop=[""]), ValueError, "stop_texts.0. is empty")
    refuses(lambda: model.generate([[1]], min_tokens=-1), ValueError, "min_tokens")
    refuses(lambda: model.generate([[1, 2]], on_text=lambda *_: 1 / 0), ZeroDivisionError)


@have
def test_generate_ends_with_ctrl_c(model):
    """A signal between two tokens ends the call at once."""
    import os
    import signal

    told = []

    def on_token(*token):
        told.append(token)
        if len(told) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        model.generate([[1, 2]], max_tokens=60, stop=[], on_token=on_token)
    assert len(told) == 5


@have
def test_generate_refuses(model):
    for change, word in [
        ({"max_tokens": 0}, "max_tokens"),
        ({"samples": 0}, "samples"),
        ({"stop": [600]}, "600"),
        ({"numbers": [1, 2]}, "numbers"),
        ({"top_p": 0.0}, "top_p"),
        ({"temperature": -1.0}, "temperature"),
        ({"prompts": [[]]}, "empty"),
        ({"prompts": [[600]]}, "600"),
    ]:
        refuses(functools.partial(model.generate, **{"prompts": [[1, 2]], **change}), ValueError, word)
    refuses(lambda: model.generate("one text"), TypeError, "prompts")
    refuses(lambda: model.generate([[1, 2]], on_token=lambda *_: 1 / 0), ZeroDivisionError)
