"""A trained model beside its peers: Napier, transformers and llama.cpp on one GGUF file.

    python bench/python/real_model.py MODEL.gguf FOLDER [--threads 2] [--texts 200] [--only napier-float32,llama.cpp]

in an environment with napier, torch and transformers. FOLDER is the same model for transformers, in float32
(examples/smollm2_folder.py makes it of SmolLM2's file). llama.cpp runs in the environment that decode.py names.

A row for each library and compute mode: milliseconds of a decode step at 1, 8 and 64 sequences (decode.py), the seconds of the
log-probabilities of 512 tokens at every position (least of three), the memory after that, the process's own and that of mapped
files, without what Python and its libraries take before the model is loaded; and the distances of the log-probabilities of
paragraphs of docs/ from those of transformers in float32, mean and largest. --texts 0 leaves the distances out.
"""

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import decode
import numpy as np

TOKENS = 512
ROWS = ("napier-float32", "napier-bfloat16", "transformers-float32", "transformers-bfloat16", "llama.cpp-")
REFERENCE = "transformers-float32"


def napier_scorer(model, compute, threads):
    model = decode.napier_for(threads).CausalLM(model, compute=compute)
    return lambda ids: model.batch_logprobs([ids[:1]], [ids[1:]]).logprobs


def transformers_scorer(folder, compute, threads):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, compute)).eval()

    @torch.no_grad()
    def score(ids):
        logits = model(torch.tensor([ids])).logits[0, :-1].float()
        return logits.log_softmax(1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0].numpy()

    return score


def llama_scorer(model, compute, threads):
    sys.path.insert(0, str(decode.HERE.parent / "peers"))
    import llama_peer as peer

    context, vocabulary = peer.loaded(model, "f16", threads)
    batch, pool = peer.llama_cpp.llama_batch_init(peer.MOST_TOKENS, 0, 1), peer.ThreadPoolExecutor(threads)
    return lambda ids: peer.logprobs(context, vocabulary, batch, pool, np.array(ids), len(ids) - 1)


def memory():
    """Megabytes of this process, and of the files that it has mapped."""
    found = dict(re.findall(r"Rss(Anon|File):\s+(\d+)", Path("/proc/self/status").read_text()))
    return np.array([int(found["Anon"]), int(found["File"])]) / 1024


def work(row, wanted):
    who, compute = row.split("-")
    files = json.load(sys.stdin)
    model = wanted.folder if who == "transformers" else wanted.model
    importlib.import_module({"llama.cpp": "llama_cpp"}.get(who, who))
    before = memory()
    score = {"napier": napier_scorer, "transformers": transformers_scorer, "llama.cpp": llama_scorer}[who](model, compute, wanted.threads)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        score(files["tokens"])
        seconds.append(time.perf_counter() - start)
    about = {"seconds": min(seconds), "memory": (memory() - before).tolist()}
    about["logprobs"] = [float(x) for ids in files["texts"] for x in score(ids)]
    steps = () if wanted.no_steps else decode.WORKERS[who](model, compute, wanted.threads)
    about["steps"] = [float(1e3 * np.median(s)) for s in steps]
    print(json.dumps(about))


def paragraphs(count):
    found = []
    for file in sorted((decode.HERE.parents[1] / "docs").glob("*.md")):
        found += [" ".join(p.split()) for p in re.split(r"\n\s*\n", file.read_text(encoding="utf-8"))]
    return [p for p in found if 40 <= len(p.split()) <= 100 and p[0].isalpha()][:count]


def measure(row, wanted, files):
    python = decode.LLAMA if row.startswith("llama") else sys.executable
    command = [python, __file__, wanted.model, wanted.folder, "--threads", str(wanted.threads), "--worker", row]
    with tempfile.TemporaryFile("w+") as given:
        json.dump(files, given)
        given.seek(0)
        command += ["--no-steps"] * wanted.no_steps
        done = subprocess.run(command, stdin=given, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--no-steps", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.worker:
        work(wanted.worker, wanted)
        return
    import napier

    encode = napier.CausalLM(wanted.model).encode
    texts = paragraphs(wanted.texts)
    files = {"tokens": encode(" ".join(paragraphs(100)))[:TOKENS], "texts": [encode(text) for text in texts]}
    rows = [row for row in ROWS if any(row.startswith(only) for only in wanted.only.split(","))]
    if wanted.texts and REFERENCE not in rows:
        rows.insert(0, REFERENCE)
    found = {row: measure(row, wanted, files) for row in sorted(rows, key=lambda row: row != REFERENCE)}
    print(f"{decode.processor()}, {wanted.threads} threads, {len(texts)} texts")
    for row in rows:
        steps = " / ".join(f"{ms:.1f}" for ms in found[row]["steps"])
        own, mapped = found[row]["memory"]
        line = f"{row:22} step {steps} ms, {TOKENS} tokens {found[row]['seconds']:.3f} s, {own:.0f} + {mapped:.0f} MB"
        if texts:
            apart = np.abs(np.subtract(found[row]["logprobs"], found[REFERENCE]["logprobs"]))
            line += f", distance {apart.mean():.2g}, at most {apart.max():.2g}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
