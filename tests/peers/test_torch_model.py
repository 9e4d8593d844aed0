"""napier.CausalLM and napier.lm_eval against transformers and lm-evaluation-harness's own class, in float32, on a small random
model."""
import functools
import json
import os
import sys
import tempfile

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

import model_data
import napier
from napier.lm_eval import NapierLM, missing
from support import Skip, python, raises

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENIZER = os.path.join(os.path.dirname(HERE), "support", "tiny_tokenizer.json")
PAIRS = [("the cat", " sat on the mat"), ("the cat", " ran"), ("", "An empty context."), ("Question: 2+2?\nAnswer:", " 4"),
         ("Question: 2+2?\nAnswer:", " 5 or more"), ("a b c d e f g", " h"), ("naïve", " ☃ 漢字")]


def with_harness(test):
    """A test that needs the lm-evaluation-harness."""
    @functools.wraps(test)
    def run():
        if missing is not None:
            raise Skip(f"no lm-evaluation-harness: {missing}")
        return test()
    return run


def both(**tokenizer_files):
    """transformers' model, and the same from a directory, with these files (their names without .json) about its tokenizer."""
    model = model_data.make(bos_token_id=278, eos_token_id=278)
    folder = tempfile.TemporaryDirectory()
    model_data.save(model, folder.name)
    for name, content in tokenizer_files.items():
        with open(os.path.join(folder.name, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(content, file)
    with open(TOKENIZER, "rb") as source, open(os.path.join(folder.name, "tokenizer.json"), "wb") as target:
        target.write(source.read())
    mine = napier.CausalLM.from_pretrained(folder.name)
    mine.folder = folder  # weights are mapped: it goes when the model goes
    return model, mine


def test_logits_and_logprobs():
    theirs, mine = both()
    ids = mine.encode("The quick brown fox jumps over the lazy dog")
    with torch.no_grad():
        logits = theirs(torch.tensor([ids])).logits[0].numpy()
    worst = np.abs(mine.forward(ids) - logits).max()
    assert worst < 1e-3, worst
    wanted = torch.log_softmax(torch.from_numpy(logits).double(), -1)[torch.arange(3, len(ids) - 1), ids[4:]]
    off = np.abs(mine.logprobs_for(ids[:4], ids[4:]) - wanted.numpy()).max()
    assert off < 1e-4, off
    return f"logits within {worst:.1e}, log-probabilities {off:.1e}"


def test_the_head_is_a_tensor():
    for dtype, given in ((torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.float16, torch.float16)):
        theirs = model_data.make(dtype)
        with tempfile.TemporaryDirectory() as folder:
            model_data.save(theirs, folder, dtype)
            head = torch.from_numpy(napier.CausalLM(folder).head())
            assert head.dtype == given and torch.equal(head.float(), theirs.lm_head.weight.detach())


PROMPTS, RESPONSES = [[5, 6, 7], [8, 9]], [[9, 10, 11], [12, 13]]


def saved(model, dtype, **options):
    """The scores of a model that is saved and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        model_data.save(model, folder, dtype)
        return napier.CausalLM.from_pretrained(folder, **options).batch_logprobs(PROMPTS, RESPONSES).logprobs


def test_a_training_loop_in_memory():
    """After each step of an optimizer the scores are those of the model saved and loaded, bit for bit."""
    steps = 0
    experts = dict(family="qwen3_moe", num_experts=6, num_experts_per_tok=2, moe_intermediate_size=40, norm_topk_prob=True)
    for dtype, tied, compute, changes in ((torch.float32, True, "float32", {}), (torch.float32, False, "bfloat16", {}),
                                          (torch.bfloat16, True, "bfloat16", {}), (torch.float16, False, "float32", {}),
                                          (torch.bfloat16, True, "bfloat16", experts)):
        model = model_data.make(tie_word_embeddings=tied, **changes).to(dtype)
        mine = napier.CausalLM.from_model(model, tokenizer=PreTrainedTokenizerFast(tokenizer_file=TOKENIZER), compute=compute)
        assert mine.info["tied"] == tied and mine.encode("the cat")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        before = b""
        for _ in range(3):
            got = mine.batch_logprobs(PROMPTS, RESPONSES).logprobs
            assert got.tobytes() == saved(model, dtype, compute=compute).tobytes() != before
            before = got.tobytes()
            ids = torch.tensor([PROMPTS[0] + RESPONSES[0]])
            optimizer.zero_grad()
            model(ids, labels=ids).loss.backward()
            optimizer.step()
            mine.update()
            steps += 1
        with torch.no_grad():  # a parameter gets other memory, and the old one changes
            parameter = model.model.layers[0].self_attn.v_proj.weight
            old = parameter.data
            parameter.data = old * 2
            old.zero_()
        mine.update()
        assert mine.batch_logprobs(PROMPTS, RESPONSES).logprobs.tobytes() == saved(model, dtype, compute=compute).tobytes()
    return f"{steps} steps"


def test_rewards_in_memory():
    """A reward model of transformers, which has no architectures before it is saved."""
    for family in ("qwen3", "qwen2", "llama"):
        model = model_data.make(family=family, labels=1, tie_word_embeddings=False)
        mine = napier.CausalLM.from_model(model)
        with torch.no_grad():
            wanted = np.concatenate([model(torch.tensor([p + r])).logits.numpy() for p, r in zip(PROMPTS, RESPONSES)])
        got = mine.rewards(PROMPTS, RESPONSES)
        assert got.shape == wanted.shape and np.abs(got - wanted).max() < 1e-4, family
        with torch.no_grad():
            model.score.weight.mul_(2)
        mine.update()
        assert (mine.rewards(PROMPTS, RESPONSES) == 2 * got).all(), family
        # a config of the checkpoint that training began with
        model.config.architectures = [type(model).__name__.replace("SequenceClassification", "CausalLM")]
        assert (napier.CausalLM.from_model(model).rewards(PROMPTS, RESPONSES) == 2 * got).all(), family
        another = type("Another", (type(model),), {})(model.config)
        another.load_state_dict(model.state_dict())
        assert (napier.CausalLM.from_model(another).rewards(PROMPTS, RESPONSES) == 2 * got).all(), family


def test_memory_outlives_its_model():
    model = model_data.make()
    mine = napier.CausalLM.from_state_dict(model.config, {k: v.clone() for k, v in model.state_dict().items()})
    wanted = saved(model, torch.float32)
    del model
    junk = [torch.full((307, 64), float("nan")) for _ in range(20)]  # what was freed is used again
    assert mine.batch_logprobs(PROMPTS, RESPONSES).logprobs.tobytes() == wanted.tobytes() and junk


def test_tensors_that_are_refused():
    model = model_data.make()
    good = model.state_dict()
    name = "model.layers.0.mlp.up_proj.weight"
    for tensor, says in ((good[name].to("meta"), "no plain memory"), (good[name].T.contiguous().T, "not contiguous"),
                         (good[name].to_sparse(), "no plain memory"), (good[name].double(), "f64"),
                         (good[name].to(torch.int32), "expected float32")):
        try:
            napier.CausalLM.from_state_dict(model.config, {**good, name: tensor})
        except (ValueError, NotImplementedError) as error:
            assert name in str(error) and says in str(error), error
        else:
            raise AssertionError(says)


@with_harness
def test_the_harness():
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    theirs, mine = both()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=TOKENIZER, eos_token="<|endoftext|>", pad_token="<|endoftext|>",
                                        clean_up_tokenization_spaces=False)
    hf = HFLM(pretrained=theirs, tokenizer=tokenizer, device="cpu", batch_size=2, max_length=512)
    ours = NapierLM(mine)
    requests = [Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=i) for i, pair in enumerate(PAIRS)]
    worst = 0.0
    for pair, (a, greedy_a), (b, greedy_b) in zip(PAIRS, ours.loglikelihood(requests), hf.loglikelihood(requests)):
        worst = max(worst, abs(a - b))
        assert abs(a - b) < 1e-3 and greedy_a == greedy_b, (pair, a, b)
    texts = [Instance(request_type="loglikelihood_rolling", doc={}, arguments=(c + t,), idx=i) for i, (c, t) in enumerate(PAIRS)]
    for a, b in zip(ours.loglikelihood_rolling(texts), hf.loglikelihood_rolling(texts)):
        b = b[0] if isinstance(b, tuple) else b
        worst = max(worst, abs(a - b))
        assert abs(a - b) < 1e-3, (a, b)
    return f"{len(PAIRS)} requests and texts within {worst:.1e}"


@with_harness
def test_the_harness_s_generation():
    """Greedy texts are those of hf in float32: until strings within and across tokens, the end of text, lengths, and contexts
    that are too long."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    theirs, mine = both(tokenizer_config={"eos_token": "<|endoftext|>"})
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=TOKENIZER, eos_token="<|endoftext|>", pad_token="<|endoftext|>",
                                        clean_up_tokenization_spaces=False)
    hf = HFLM(pretrained=theirs, tokenizer=tokenizer, device="cpu", batch_size=1, max_length=80)
    ours = NapierLM(mine, max_length=80)
    contexts = [context + continuation for context, continuation in PAIRS] + ["A longer context. " * 12]

    def texts(lm, arguments):
        asked = [Instance(request_type="generate_until", doc={}, arguments=(c, how), idx=i)
                 for i, (c, how) in enumerate(zip(contexts, arguments))]
        return lm.generate_until(asked, disable_tqdm=True)

    free = texts(hf, [{"until": [], "max_gen_toks": 24, "do_sample": False}] * len(contexts))
    assert texts(ours, [{"until": [], "max_gen_toks": 24, "do_sample": False}] * len(contexts)) == free
    stopped = 0
    for begin, size in ((1, 1), (3, 2), (6, 3), (0, 5)):
        how = [{"until": ["never", text[begin:begin + size] or "x"], "max_gen_toks": 20} for text in free]
        wanted = texts(hf, how)
        assert texts(ours, how) == wanted, (begin, size)
        stopped += sum(a != b[:len(a)] or len(a) < len(b) for a, b in zip(wanted, free))
    assert stopped > len(contexts)
    return f"{5 * len(contexts)} texts are the same, {stopped} of them stopped"


@with_harness
def test_the_harness_s_prefix_token():
    """hf takes it from the tokenizer, whatever config.json says (bos and eos are 278 there)."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    end, start = "<|im_end|>", {"content": "<|im_start|>", "__type": "AddedToken"}
    sets = [({}, {}), ({"tokenizer_config": {"bos_token": None, "eos_token": end}}, {}),
            ({"tokenizer_config": {"bos_token": start, "eos_token": end, "tokenizer_class": "Qwen2Tokenizer"}}, {}),
            ({"tokenizer_config": {"eos_token": "<|endoftext|>"}, "special_tokens_map": {"eos_token": end}}, {}),
            ({"tokenizer_config": {"bos_token": start}}, {"prefix_token_id": 5})]
    seen = set()
    for files, options in sets:
        theirs, mine = both(**files)
        hf = HFLM(pretrained=theirs, tokenizer=mine.folder.name, device="cpu", max_length=512, **options)
        ours = NapierLM(mine, **options)
        assert (ours.prefix_token_id, ours.eot_token_id) == (hf.prefix_token_id, hf.eot_token_id), files
        seen.add(ours.prefix_token_id)
        for kind, arguments in (("loglikelihood_rolling", ("An empty context.",)), ("loglikelihood", ("", " sat"))):
            requests = [Instance(request_type=kind, doc={}, arguments=arguments, idx=0)]
            (a,), (b,) = getattr(ours, kind)(requests), getattr(hf, kind)(requests)
            assert np.abs(np.subtract(a, b)).max() < 1e-3, (files, kind, a, b)
    assert seen == {278, 280, 279, 5}


CHAT = ("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content }}{{ thought if enable_thinking else '' }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
        "{% endif %}")


@with_harness
def test_the_harness_s_chat_templates():
    """The prompts of conversations, the template that the harness logs, and answers behind thoughts are hf's."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    for template in (CHAT, [{"name": "default", "template": CHAT}, {"name": "other", "template": "{{ messages[0].content }}"}]):
        theirs, mine = both(tokenizer_config={"bos_token": None, "eos_token": "<|im_end|>", "chat_template": template})
        for options in ({}, {"enable_thinking": False}, {"enable_thinking": True, "think_end_token": "e", "chat_template_args": {"thought": "!"}}):
            hf = HFLM(pretrained=theirs, tokenizer=mine.folder.name, device="cpu", max_length=512, dtype="float32", **options)
            ours = NapierLM(mine, **options)
            for roles in (["user"], ["system", "user"], ["user", "assistant", "user"], ["user", "assistant"]):
                talk = [{"role": role, "content": f"{role} says: a cat"} for role in roles]
                for generates in (True, False):
                    assert ours.apply_chat_template(talk, generates) == hf.apply_chat_template(talk, generates), (roles, generates)
            for name in (True, False, *(["other"] if template is not CHAT else [])):
                assert ours.chat_template(name) == hf.chat_template(name), name
                said = ours.apply_chat_template([{"role": "user", "content": "a cat"}])
                assert (said == "a cat") == (name == "other"), (name, said)  # what is logged is what is rendered
        assert ours.tokenizer_name != NapierLM(both()[1]).tokenizer_name
        prompt = ours.apply_chat_template([{"role": "user", "content": "the cat"}])
        for token in ("e", " ", 5, "270", "no such text"):
            hf.think_end_token = ours._think_end = int(token) if str(token).isdigit() else token
            requests = [Instance(request_type="generate_until", doc={}, idx=0, arguments=(prompt, {"until": ["zz"], "max_gen_toks": 24}))]
            assert ours.generate_until(requests) == hf.generate_until(requests), token
    raises(ValueError, "think_end_token: missing", lambda: NapierLM(mine, enable_thinking=True))
    raises(ValueError, "chat_template: the model has none called 'x'", lambda: ours.chat_template("x"))
    raises(ValueError, "the chat template fails: no system", lambda: ours.model.tokenizer.apply_chat_template([{"role": "system"}]))


@with_harness
def test_the_harness_keeps_its_models():
    """In a process of its own: the harness loads its models only where it knows none yet."""
    code = ("import napier.lm_eval as ours; from lm_eval.api.registry import get_model; "
            "print(get_model('dummy').__name__, get_model('hf').__name__, get_model('napier') is ours.NapierLM)")
    done = python("-c", code)
    assert done.stdout.split()[-3:] == ["DummyLM", "HFLM", "True"], done.stdout + done.stderr


TASK = """task: tiny
dataset_path: json
dataset_kwargs: {{data_files: {{test: {0}/tiny.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
"""


@with_harness
def test_the_harness_s_command():
    """python -m napier.lm_eval, with a task in a folder and the model's chat template: napier's answers are hf's."""
    _, mine = both(tokenizer_config={"eos_token": "<|im_end|>", "chat_template": CHAT})
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "tiny.yaml"), "w", encoding="utf-8") as task:
            task.write(TASK.format(folder))
        with open(os.path.join(folder, "tiny.jsonl"), "w", encoding="utf-8") as lines:
            for i, (context, continuation) in enumerate(p for p in PAIRS if p[0]):
                json.dump({"question": context, "choices": [continuation.strip(), "zero", "one"], "answer": i % 3}, lines)
                lines.write("\n")

        def answers(name, *options):
            out = os.path.join(folder, name)
            done = python("-m", "napier.lm_eval", *options, "--tasks", "tiny", "--include_path", folder, "--output_path", out,
                          "--log_samples", "--apply_chat_template", "--system_instruction", "Be brief.", HF_HUB_OFFLINE="1", HF_HOME=folder, HF_DATASETS_OFFLINE="1")
            assert done.returncode == 0, done.stderr
            (samples,) = (os.path.join(where, f) for where, _, files in os.walk(out) for f in files if f.startswith("samples_"))
            with open(samples, encoding="utf-8") as file:
                found = sorted((json.loads(line) for line in file), key=lambda sample: sample["doc_id"])
            return [[float(r[0][0]) for r in sample["resps"]] for sample in found]

        arguments = f"pretrained={mine.folder.name}"
        ours, hf = answers("ours", "--model_args", arguments), answers("hf", "--model", "hf", "--device", "cpu", "--model_args",
                                                                      arguments + ",dtype=float32")
        worst = np.abs(np.subtract(ours, hf)).max()
        assert len(ours) == 6 and worst < 1e-3, (ours, hf)
    return f"{len(ours)} questions within {worst:.1e}"


@with_harness
def test_which_model_the_command_takes():
    import lm_eval.__main__ as command
    from napier.lm_eval import main
    for given, wanted in (("--tasks x", "--model napier --tasks x"), ("run --tasks x", "run --model napier --tasks x"),
                          ("--model hf --tasks x", None), ("run -M hf", None), ("--model=hf", None), ("ls tasks", None), ("", None)):
        arguments, evaluate = sys.argv, command.cli_evaluate
        try:
            sys.argv, command.cli_evaluate = ["lm_eval", *given.split()], lambda: None
            main()
            assert sys.argv[1:] == (given if wanted is None else wanted).split(), sys.argv
        finally:
            sys.argv, command.cli_evaluate = arguments, evaluate
