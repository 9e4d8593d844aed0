"""Log-probabilities under a random model of the shape of Qwen3-0.6B, against transformers and llama.cpp; and what sharing a
prompt among responses is worth. "difference" is how far a library's log-probabilities are from those of transformers in
fp32, at most."""
import numpy as np

from suites.common import Cell

NAME = "model"
PEERS = QUICK_PEERS = ("napier", "transformers", "llama")
THREADS = "2"
ROUNDS, SLICE, ONCE = (5, 5), 0.0, 1e9
MINUTES = None
KEEPS = True
MEMORY = FIGURES = NEW_WORKERS = SHARES = False

VOCABULARY = 151_936
# tokens of a prompt and of its response; "all": the log-probabilities of all positions
PROMPTS = {"prompt-132": (120, 12), "prompt-512": (500, 12), "all-132": (1, 131), "all-512": (1, 511)}
SHARED = [(prompt, 12, count) for prompt in (10, 120, 1000) for count in (1, 2, 4, 8, 16)]


def cell_of(label, op, threads, prompt, response, count):
    return Cell(label, op, threads, (prompt, response, count), 1 << 30,
                {"dtype": "f32", "prompt": prompt, "response": response, "count": count})


def cells(options, threads):
    found = []
    for count in threads:
        prompts, shared = list(PROMPTS.items()), SHARED
        if options.quick:
            prompts, shared = prompts[:1], SHARED[2:3]
        found += [cell_of(name, "score", count, *tokens, 1) for name, tokens in prompts]
        found += [cell_of(f"share-{shape[0]}-{shape[2]}", "share", count, *shape) for shape in shared]
    return found


def inputs(cell, folder):
    ids = np.random.default_rng(6).integers(0, VOCABULARY, cell.prompt + cell.response * cell.count).astype(np.int32)
    return {"prompt": ids[:cell.prompt], "responses": ids[cell.prompt:]}


def truths(cell, arrays):
    return {}


def judge(cell, arrays, kept):
    exact = kept.get("transformers_f32", {}).get("logprobs")
    if exact is None:
        return {}
    return {variant: {"difference": round(float(np.abs(results["logprobs"] - exact).max()), 6)}
            for variant, results in kept.items()}
