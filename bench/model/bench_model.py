"""Tokens per second of one prompt against transformers, and what sharing a prompt is worth. Run by run.sh.

    bench_model.py --build DIR --model DIR [--threads N] [--rounds N] [--only REGEX] [--output FILE.jsonl]

Each worker is a process of its own, bound to as many cores as it has threads; workers take turns, round after round,
one at a time. A figure is the fastest of the rounds, by the processor's time of the worker divided by its threads where
--processor is given (for machines that others use too), else by the wall clock.
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
        answer = self.process.stdout.readline().split()
        if len(answer) != 2:
            sys.exit(f"{self.name}: no answer to {line}")
        return float(answer[0]), float(answer[1])

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
    for name, (tokens, line) in PROMPTS.items():
        if re.search(wanted.only, name):
            for worker, best in zip(workers, in_turns(wanted, [(w, line) for w in workers])):
                tell(wanted, case=name, who=worker.name, seconds=best, tokens_per_second=tokens / best)
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
