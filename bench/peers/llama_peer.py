"""llama.cpp, from files of three types, as which is fastest depends on the machine; keys and values are f32 where weights are.

Responses are scored one by one, each with its prompt before it; only the rows that are wanted have logits. llama.cpp has no
log-probabilities: those are NumPy's, some rows at a time, shared out to as many threads."""
import ctypes
import functools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import llama_cpp
import numpy as np

VERSION = llama_cpp.__version__
MOST_TOKENS = 1024
MAKE_GGUF = Path(__file__).resolve().parent.parent / "model/make_gguf.py"
silent = llama_cpp.llama_log_callback(lambda level, text, user: None)
llama_cpp.llama_log_set(silent, None)


@functools.cache
def loaded(path, kind, threads):
    """A context and the size of its vocabulary."""
    file = path if path.endswith(".gguf") else f"{path}-{kind}.gguf"
    if not Path(file).exists():
        subprocess.run([sys.executable, MAKE_GGUF, path, file, "--dtype", kind], check=True, stdout=sys.stderr)
    model = llama_cpp.llama_model_load_from_file(file.encode(), llama_cpp.llama_model_default_params())
    how = llama_cpp.llama_context_default_params()
    how.n_ctx = how.n_batch = how.n_ubatch = MOST_TOKENS
    how.n_threads = how.n_threads_batch = threads
    how.type_k = how.type_v = llama_cpp.GGML_TYPE_F32 if kind == "f32" else llama_cpp.GGML_TYPE_F16
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    return llama_cpp.llama_init_from_model(model, how), vocabulary


def logprobs_of(rows):
    logits, ids = rows
    most = logits.max(1, keepdims=True)
    return np.take_along_axis(logits, ids[:, None], 1)[:, 0] - most[:, 0] - np.log(np.exp(logits - most).sum(1))


def logprobs(context, vocabulary, batch, pool, ids, last):
    """Returns the results of the last tokens."""
    first = len(ids) - last - 1
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, i, 1, 0
        batch.logits[i] = first <= i < len(ids) - 1
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    if llama_cpp.llama_decode(context, batch):
        raise RuntimeError("llama_decode")
    llama_cpp.llama_synchronize(context)
    address = ctypes.cast(llama_cpp.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
    logits = np.ctypeslib.as_array(address, (last, vocabulary))
    parts = [(logits[i:i + 4], ids[first + 1 + i:first + 5 + i]) for i in range(0, last, 4)]
    return np.concatenate(list(pool.map(logprobs_of, parts)))


def score(job):
    prompt, responses = (job.arrays[name].view(np.int32).astype(np.int64) for name in ("prompt", "responses"))
    rows = [np.concatenate([prompt, ids]) for ids in responses.reshape(-1, job.response)]
    batch, pool = llama_cpp.llama_batch_init(MOST_TOKENS, 0, 1), ThreadPoolExecutor(job.threads)

    def way(kind):
        context, vocabulary = loaded(job.model, kind, job.threads)
        return lambda: {"logprobs": np.concatenate([
            logprobs(context, vocabulary, batch, pool, ids, job.response) for ids in rows])}

    return {f"llama_{kind}": way(kind) for kind in ("f32", "f16", "bf16")}


OPERATIONS = {"score": score}
