"""napier audit of many responses beside a tiny model: seconds, memory, and whether 1 and 2 threads print the same report.

    python bench/python/audit.py [--responses 10000] [--tokens 500] [--distinct 2000] [--threads 1,2]

Responses are drawn by the model itself, each distinct one stands in the file several times, and the log-probabilities have the noise of an
engine in bfloat16 and are raw where T = 0.7 is declared. Peak memory is that of the process that audits (Linux)."""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

import napier

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "support"))
import docstrings


def write(path, model, responses, tokens, distinct):
    rng = np.random.default_rng(0)
    prompts = [rng.integers(5, 270, 12).tolist() for _ in range(distinct)]
    made = model.generate(prompts, max_tokens=tokens, stop=[], temperature=0.7)
    ids = made.token_ids.reshape(distinct, tokens)
    x, _, _ = model.batch_logprobs(prompts, list(ids))
    x = (x * (1 + 0.003 * rng.standard_normal(x.size))).reshape(distinct, tokens).round(6)
    texts = [
        json.dumps({"prompt_ids": p, "response_ids": i.tolist(), "logprobs": v.tolist(), "temperature": 0.7})
        for p, i, v in zip(prompts, ids, x)
    ]
    with open(path, "w") as file:
        file.writelines(texts[k % distinct] + "\n" for k in range(responses))


def audit(folder, path, threads):
    """In a process of its own: prints seconds, the peak of memory and the report's digest."""
    napier.set_num_threads(threads)
    model, wall, used = napier.CausalLM(folder), time.perf_counter(), time.process_time()
    text = napier.audit(path, model).json()
    seconds = time.perf_counter() - wall, time.process_time() - used
    status = pathlib.Path("/proc/self/status").read_text()  # ru_maxrss would begin with the parent's peak
    print(*seconds, int(status.split("VmHWM:")[1].split()[0]) / 1024, hashlib.sha256(text.encode()).hexdigest())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("responses", 10000), ("tokens", 500), ("distinct", 2000)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.one:
        return audit(o.one[0], o.one[1], int(o.one[2]))
    with tempfile.TemporaryDirectory() as place:
        docstrings.models(pathlib.Path(place))
        folder, path = f"{place}/Qwen3-0.6B", f"{place}/rollouts.jsonl"
        write(path, napier.CausalLM(folder), o.responses, o.tokens, min(o.distinct, o.responses))
        digests = set()
        for threads in o.threads.split(","):
            done = subprocess.run([sys.executable, __file__, "--one", folder, path, threads], stdout=subprocess.PIPE, text=True, check=True)
            wall, used, memory, digest = done.stdout.split()
            digests.add(digest)
            print(f"{threads} threads: {float(wall):.1f} s, {float(used):.1f} s of CPU, {float(memory):.0f} MB, report {digest[:12]}")
    print("the same report, bit for bit" if len(digests) == 1 else "the reports DIFFER")
    return len(digests) != 1


if __name__ == "__main__":
    sys.exit(main())
