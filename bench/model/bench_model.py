"""Tokens per second of one prompt against transformers and llama.cpp, and what sharing a prompt is worth. Run by run.sh.

    bench_model.py --build DIR --model DIR [--llama PYTHON] [--threads N] [--rounds N] [--only REGEX]
                   [--output FILE.jsonl]

Each worker is a process of its own, bound to as many cores as it has threads; workers take turns, round after round,
one at a time. A figure is the fastest of the rounds, by the processor's time of the worker divided by its threads where
--processor is given (for machines that others use too), else by the wall clock. All score the same ids; "difference" is
how far a worker's log-probabilities are from those of transformers in fp32, at most. llama.cpp runs from files of three
types, since which is fastest depends on the machine.
"""
import argparse
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


class Worker:
    def __init__(self, name, command, threads):
        self.logprobs = []
        cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:threads])
        environment = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS=str(threads),
                           MKL_NUM_THREADS=str(threads))
        self.name = name
        self.process = subprocess.Popen(["taskset", "-c", cores] + command, stdin=subprocess.PIPE, env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if self.process.stdout.readline().strip() != "ready":
            sys.exit(f"{name}: not ready")

    def run(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = [float(word) for word in self.process.stdout.readline().split()]
        if len(answer) < 2:
            sys.exit(f"{self.name}: no answer to {line}")
        self.logprobs = answer[2:]
        return answer[0], answer[1]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def napier(wanted, mode):
    program = os.path.join(wanted.build, "model_worker")
    return Worker(f"napier {mode}", [program, wanted.model, mode, str(wanted.threads)], wanted.threads)


def transformers(wanted, mode):
    script = os.path.join(HERE, "transformers_worker.py")
    return Worker(f"transformers {mode}", [sys.executable, script, wanted.model, mode, str(wanted.threads)],
                  wanted.threads)


def llama(wanted, kind):
    """Its keys and values are f32 where its weights are."""
    script, file = os.path.join(HERE, "llama_worker.py"), f"{wanted.model}-{kind}.gguf"
    if not os.path.exists(file):
        subprocess.run([wanted.llama, os.path.join(HERE, "make_gguf.py"), wanted.model, file, "--dtype", kind],
                       check=True)
    cache = "f32" if kind == "f32" else "f16"
    return Worker(f"llama.cpp {kind}", [wanted.llama, script, file, cache, str(wanted.threads)], wanted.threads)


def in_turns(wanted, pairs):
    """The fastest seconds of each (worker, line), all of them in turn."""
    best = [float("inf")] * len(pairs)
    for _ in range(wanted.rounds):
        for i, (worker, line) in enumerate(pairs):
            wall, processor = worker.run(line)
            best[i] = min(best[i], processor / wanted.threads if wanted.processor else wall)
    return best


def tell(wanted, **row):
    words = (f"{key} {value:.3g}" if isinstance(value, float) else f"{value}" for key, value in row.items())
    print("  ".join(words), flush=True)
    if wanted.output:
        with open(wanted.output, "a", encoding="utf-8") as out:
            by = "processor" if wanted.processor else "wall"
            out.write(json.dumps({"threads": wanted.threads, "by": by, **row}) + "\n")


PROMPTS = {"prompt 132": (132, "score 120 12 1 0"), "prompt 512": (512, "score 500 12 1 0"),
           "all 132": (132, "all 132"), "all 512": (512, "all 512")}


def prompts(wanted):
    workers = [make(wanted, mode) for mode in ("f32", "bf16") for make in (napier, transformers)]
    workers += [llama(wanted, kind) for kind in ("f32", "f16", "bf16") if wanted.llama]
    exact = workers[1]
    for name, (tokens, line) in PROMPTS.items():
        if re.search(wanted.only, name):
            for worker, best in zip(workers, in_turns(wanted, [(w, line) for w in workers])):
                difference = max(abs(a - b) for a, b in zip(worker.logprobs, exact.logprobs, strict=True))
                tell(wanted, case=name, who=worker.name, seconds=best, tokens_per_second=tokens / best,
                     difference=difference)
    for worker in workers:
        worker.close()


def sharing(wanted):
    for mode in ("f32", "bf16"):
        worker = napier(wanted, mode)
        for prompt in (10, 120, 1000):
            for count in (1, 2, 4, 8, 16):
                name = f"share {mode} {prompt} {count}"
                if re.search(wanted.only, name):
                    lines = [f"score {prompt} 12 {count} {how}" for how in (0, 1, 2)]
                    best = in_turns(wanted, [(worker, line) for line in lines])
                    tell(wanted, case=name, shared=best[0], unshared=best[1], one_by_one=best[2],
                         times_faster=min(best[1:]) / best[0])
        worker.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--llama", help="the interpreter that has llama_cpp; none: without it")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--output")
    wanted = parser.parse_args()
    if any(re.search(wanted.only, name) for name in PROMPTS):
        prompts(wanted)
    sharing(wanted)


main()
