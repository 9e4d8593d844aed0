"""The same lines as napier_worker.c, answered by llama.cpp: llama_worker.py FILE.gguf f32|f16 THREADS

The second word is the type of its keys and values. Responses are scored one by one, each with its prompt before it;
only the rows that are wanted have logits. llama.cpp has no log-probabilities: those are NumPy's, some rows at a time,
shared out to as many threads.
"""
import ctypes
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import llama_cpp
import numpy as np

from ids import Ids

MOST_TOKENS = 1024
file, cache, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
silent = llama_cpp.llama_log_callback(lambda level, text, user: None)
llama_cpp.llama_log_set(silent, None)
model = llama_cpp.llama_model_load_from_file(file.encode(), llama_cpp.llama_model_default_params())
how = llama_cpp.llama_context_default_params()
how.n_ctx = how.n_batch = how.n_ubatch = MOST_TOKENS
how.n_threads = how.n_threads_batch = threads
how.type_k = how.type_v = llama_cpp.GGML_TYPE_F32 if cache == "f32" else llama_cpp.GGML_TYPE_F16
context = llama_cpp.llama_init_from_model(model, how)
vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
batch = llama_cpp.llama_batch_init(MOST_TOKENS, 0, 1)
pool = ThreadPoolExecutor(threads)


def logprobs_of(rows):
    logits, ids = rows
    most = logits.max(1, keepdims=True)
    return np.take_along_axis(logits, ids[:, None], 1)[:, 0] - most[:, 0] - np.log(np.exp(logits - most).sum(1))


def logprobs(ids, last):
    """Of the last tokens; of all but the first where last is 0."""
    first = len(ids) - last - 1 if last else 0
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, i, 1, 0
        batch.logits[i] = first <= i < len(ids) - 1
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    if llama_cpp.llama_decode(context, batch):
        raise SystemExit("llama_decode")
    llama_cpp.llama_synchronize(context)
    count = len(ids) - 1 - first
    address = ctypes.cast(llama_cpp.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
    logits = np.ctypeslib.as_array(address, (count, vocabulary))
    wanted = np.asarray(ids[first + 1:])
    parts = [(logits[i:i + 4], wanted[i:i + 4]) for i in range(0, count, 4)]
    return np.concatenate(list(pool.map(logprobs_of, parts)))


print("ready", flush=True)
for line in sys.stdin:
    sequences, last = Ids(vocabulary).of(line)
    wall, processor = time.perf_counter(), time.process_time()
    result = [logprobs(ids, last) for ids in sequences]
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(f"{wall:.6f} {processor:.6f}", *(f"{x:.5f}" for x in np.concatenate(result)), flush=True)
