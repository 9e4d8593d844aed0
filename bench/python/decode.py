"""Time of a decode step at 1, 8 and 64 sequences: Napier against transformers and llama.cpp, on a random model of
Qwen3-0.6B's shape; and of attention's part of a step over thousands of keys.

    python bench/python/decode.py MODEL [--rounds 3] [--threads 2] [--compute bfloat16,float32] [--isa avx2]
        [--output FILE.jsonl]

in an environment with napier, torch and transformers. MODEL is a folder of bench/model/make_model.py. Prompts have 32
tokens; sampling is at temperature 1 over the whole vocabulary (llama.cpp samples nothing, which is to its advantage).
llama.cpp runs in the environment `llama` of the folder $NAPIER_BENCH_HOME (default ~/.cache/napier/bench), which
`bench/setup.sh llama` makes; NAPIER_BENCH_LLAMA names another environment's folder. Without it, it is left out.

--isa holds Napier and transformers to an instruction set, avx2 or avx512. (llama.cpp has no such setting.)

--compute read compares the steps of 1, 2, 8 and 16 sequences in bf16 with reads: one before and one after each step, because
the memory's speed changes from second to second. A step's ratio is to the mean of the two.

The libraries take turns, each in a process of its own. A cell is the median step of all rounds, and the fastest. Beside them
is the time of a plain read of the weights by as many threads (bench/python/read.c, compiled by `cc`).
"""

import argparse
import ctypes
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from machine import ISAS, hold_to  # noqa: E402

CASES = ((1, 17), (8, 11), (64, 9))  # sequences, tokens
ATTENTION = ((1, 4096), (8, 4096), (64, 4096), (1, 16384), (8, 16384))  # sequences, keys of each
HEADS, KEY_HEADS, DIM, LAYERS = 16, 8, 128, 28
PROMPT = 32
READ_SEQUENCES, READ_TOKENS = (1, 2, 8, 16), 50
HOME = Path(os.environ.get("NAPIER_BENCH_HOME", Path.home() / ".cache/napier/bench"))
LLAMA = Path(os.environ.get("NAPIER_BENCH_LLAMA", HOME / "llama")) / "bin/python"


def napier_for(threads):
    import napier

    napier.set_isa(os.environ.get("NAPIER_BENCH_ISA", "auto"))
    napier.set_num_threads(threads)
    return napier


def prompts_of(sequences, vocabulary):
    draw = np.random.default_rng(sequences)
    return [draw.integers(0, vocabulary, PROMPT) for _ in range(sequences)]


def napier_steps(folder, compute, threads):
    napier = napier_for(threads)
    model = napier.CausalLM(folder, compute=compute, memory=4 << 30)
    for sequences, tokens in CASES:
        first, begun = [], [0.0] * sequences  # the times of the first sequence's tokens, and of each sequence's first token

        def on_token(sequence, index, token, logprob):
            if sequence == 0:
                first.append(time.perf_counter())
            if index == 0:
                begun[sequence] = time.perf_counter()

        model.generate(prompts_of(sequences, model.info["vocabulary"]), max_tokens=tokens, stop=[], on_token=on_token)
        yield list(np.diff([t for t in first if t >= max(begun) - 1e-3]))  # steps of all sequences


def transformers_steps(folder, compute, threads):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, compute)).eval()
    for sequences, tokens in CASES:
        ids, past, steps = torch.tensor(np.stack(prompts_of(sequences, model.config.vocab_size))), None, []
        with torch.no_grad():
            for _ in range(tokens):
                start = time.perf_counter()
                out = model(ids, cache=past, use_cache=True)
                past = out.cache
                ids = torch.multinomial(torch.softmax(out.logits[:, -1].float(), -1), 1)
                steps.append(time.perf_counter() - start)
        yield steps[1:]  # the first runs the prompts


def llama_file(folder):
    if folder.endswith(".gguf"):
        return folder
    file = f"{folder.rstrip('/')}-bf16.gguf"  # as peers/llama_peer.py names it
    if not Path(file).exists():
        subprocess.run([sys.executable, HERE.parent / "model/make_gguf.py", folder, file], check=True, stdout=sys.stderr)
    return file


def llama_steps(folder, compute, threads):
    import llama_cpp as llama

    silent = llama.llama_log_callback(lambda level, text, user: None)
    llama.llama_log_set(silent, None)
    file = llama_file(folder)
    model = llama.llama_model_load_from_file(file.encode(), llama.llama_model_default_params())
    vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    for sequences, tokens in CASES:
        how = llama.llama_context_default_params()
        how.n_ctx, how.n_seq_max = sequences * 256, sequences
        how.n_batch = how.n_ubatch = 2048
        how.n_threads = how.n_threads_batch = threads
        context = llama.llama_init_from_model(model, how)
        batch, steps = llama.llama_batch_init(sequences * PROMPT, 0, 1), []
        draw = np.random.default_rng(0)

        def run(rows):
            batch.n_tokens = len(rows)
            for i, (sequence, position, token, wanted) in enumerate(rows):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
                batch.seq_id[i][0] = sequence
            if llama.llama_decode(context, batch):
                raise RuntimeError("llama_decode")
            llama.llama_synchronize(context)
            return ctypes.cast(llama.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))[0]

        run([(s, i, int(t), i == PROMPT - 1) for s, ids in enumerate(prompts_of(sequences, vocabulary)) for i, t in enumerate(ids)])
        for t in range(tokens - 1):
            rows = [(s, PROMPT + t, int(draw.integers(vocabulary)), True) for s in range(sequences)]
            start = time.perf_counter()
            run(rows)
            steps.append(time.perf_counter() - start)
        llama.llama_batch_free(batch)
        llama.llama_free(context)
        yield steps


def attention_steps(who, threads):
    """One query a sequence on the keys of one layer, in bf16, laid out as a cache: [tokens, heads, dim] for each sequence."""
    import torch
    import napier.torch

    torch.set_num_threads(threads)
    napier_for(threads)
    for sequences, keys in ATTENTION:
        draw = torch.Generator().manual_seed(1)
        q = torch.randn(sequences, HEADS, DIM, generator=draw).bfloat16()
        k, v = (
            torch.randn(keys * KEY_HEADS * DIM, generator=draw).bfloat16().repeat(sequences).view(sequences * keys, KEY_HEADS, DIM)
            for _ in range(2)
        )
        if who == "napier":
            queries, offsets = torch.arange(sequences + 1), torch.arange(sequences + 1) * keys

            def step():
                napier.torch.attention(q, k, v, query_offsets=queries, key_offsets=offsets)
        else:
            batched = [x.view(sequences, keys, KEY_HEADS, DIM).transpose(1, 2) for x in (k, v)]

            def step():
                torch.nn.functional.scaled_dot_product_attention(q[:, :, None], *batched, enable_gqa=True)

        steps = []
        with torch.no_grad():
            for _ in range(6):
                start = time.perf_counter()
                step()
                steps.append(time.perf_counter() - start)
        yield [LAYERS * s for s in steps[1:]]


def read_steps(folder, threads):
    """(sequences, step, read): the read is the mean of those before and after the step."""
    model = napier_for(threads).CausalLM(folder, compute="bfloat16", memory=4 << 30)
    words = np.memmap(f"{folder}/model.safetensors", dtype=np.uint8, mode="r")
    with tempfile.TemporaryDirectory() as place:
        compile_read(f"{place}/read.so", "-shared", "-fPIC")
        library = ctypes.CDLL(f"{place}/read.so")
    library.read_seconds.restype = ctypes.c_double

    def read():
        return library.read_seconds(ctypes.c_void_p(words.ctypes.data), ctypes.c_int64(words.size // 8), threads)

    for sequences in READ_SEQUENCES:
        begins, ends, reads, done = [], [], [], 0

        def on_token(*_):
            nonlocal done
            if done % sequences == 0:  # a step ends with the first of its tokens
                ends.append(time.perf_counter())
            done += 1
            if done % sequences == 0:
                reads.append(read())
                begins.append(time.perf_counter())

        model.generate(prompts_of(sequences, model.info["vocabulary"]), max_tokens=READ_TOKENS, stop=[], on_token=on_token)
        for i in range(2, READ_TOKENS):  # the first step may still wait for pages
            yield sequences, ends[i] - begins[i - 1], (reads[i - 1] + reads[i]) / 2


WORKERS = {"napier": napier_steps, "transformers": transformers_steps, "llama.cpp": llama_steps}


def compile_read(program, *flags):
    subprocess.run(["cc", "-O3", "-march=native", "-pthread", *flags, HERE / "read.c", "-o", program], check=True)


def read_seconds(folder, threads):
    """A plain read of the file of the weights, mapped, by so many threads; the fastest of ten."""
    with tempfile.TemporaryDirectory() as place:
        program = f"{place}/read"
        compile_read(program)
        done = subprocess.run([program, f"{folder}/model.safetensors", str(threads)], check=True, capture_output=True, text=True)
        return float(done.stdout)


def measure(seconds, wanted, who, compute):
    python = LLAMA if who == "llama.cpp" else sys.executable
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}  # as a user has it
    done = subprocess.run(
        [python, __file__, wanted.model, "--threads", str(wanted.threads), "--worker", who, compute],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    cases = ATTENTION if compute == "attention" else CASES
    for case, line in zip(cases, done.stdout.splitlines()[-len(cases) :]):
        steps = json.loads(line)
        seconds.setdefault((compute, *(case if compute == "attention" else case[:1])), {}).setdefault(who, []).extend(steps)


def measure_reads(wanted):
    done = subprocess.run(
        [sys.executable, __file__, wanted.model, "--threads", str(wanted.threads), "--worker", "napier", "read"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"},
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compute", default="bfloat16,float32", help="of bfloat16, float32 and attention (default both dtypes), or read")
    parser.add_argument("--isa", choices=ISAS)
    parser.add_argument("--output", help="append a line of JSON for each cell")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.isa:
        hold_to(wanted.isa)
    if wanted.worker:
        who, compute = wanted.worker
        if compute == "read":
            for step in read_steps(wanted.model, wanted.threads):
                print(json.dumps(step))
            return
        steps = attention_steps(who, wanted.threads) if compute == "attention" else WORKERS[who](wanted.model, compute, wanted.threads)
        for case in steps:
            print(json.dumps(list(case)), flush=True)
        return
    if wanted.compute == "read":
        steps = np.array([step for _ in range(wanted.rounds) for step in measure_reads(wanted)])
        print(f"{processor()}, {wanted.threads} threads")
        for sequences in READ_SEQUENCES:
            _, step, read = steps[steps[:, 0] == sequences].T
            ratio = np.percentile(step / read, (25, 50, 75))
            print(
                f"{sequences} sequences: a step {1e3 * np.median(step):.1f} ms, a read {1e3 * np.median(read):.1f} ms, "
                f"step / read: median {ratio[1]:.3f}, half within {ratio[0]:.3f} to {ratio[2]:.3f}"
            )
        return
    seconds, reads = {}, []
    for _ in range(wanted.rounds):
        for compute in wanted.compute.split(","):
            for who in WORKERS:
                if who != "llama.cpp" or (LLAMA.exists() and compute != "attention"):
                    reads.append(read_seconds(wanted.model, wanted.threads))  # the memory's speed changes from second to second
                    measure(seconds, wanted, who, compute)
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "processor": processor(),
        "threads": wanted.threads,
        "read_ms": 1e3 * np.median(reads),
        "least_read_ms": 1e3 * min(reads),
    }
    print(
        f"{about['processor']}, {wanted.threads} threads; a plain read of the weights: {about['read_ms']:.1f} ms "
        f"(least {about['least_read_ms']:.1f})"
    )
    for cell, steps in seconds.items():
        middle, least = ({who: 1e3 * f(s) for who, s in steps.items()} for f in (np.median, np.min))
        peer = min(value for who, value in middle.items() if who != "napier")
        print(
            *cell,
            "ms:",
            ", ".join(f"{who} {middle[who]:.1f} (least {least[who]:.1f})" for who in steps),
            f"{peer / middle['napier']:.2f}x the fastest peer",
        )
        if wanted.output:
            with open(wanted.output, "a", encoding="utf-8") as file:
                line = {
                    **about,
                    "compute": cell[0],
                    "sequences": cell[1],
                    "keys": cell[2] if len(cell) > 2 else PROMPT,
                    "median_ms": middle,
                    "least_ms": least,
                }
                print(json.dumps(line), file=file)


if __name__ == "__main__":
    main()
