"""The same lines as napier_worker.c, answered by transformers: transformers_worker.py DIRECTORY f32|bf16 THREADS.

Responses are scored one by one, each with its prompt before it; the head computes the rows that are wanted
(logits_to_keep).
"""
import sys
import time

import torch
from transformers import Qwen3ForCausalLM

from ids import Ids

directory, mode, threads = sys.argv[1:4]
torch.set_num_threads(int(threads))
model = Qwen3ForCausalLM.from_pretrained(directory, dtype=torch.float32 if mode == "f32" else torch.bfloat16).eval()


def logprobs(ids, last):
    """Of the last tokens; of all but the first where last is 0."""
    logits = model(ids[None], logits_to_keep=last + 1 if last else 0).logits[0, :-1]
    return torch.log_softmax(logits.float(), -1).gather(1, ids[-logits.shape[0]:, None])[:, 0]


print("ready", flush=True)
for line in sys.stdin:
    sequences, last = Ids(model.config.vocab_size).of(line)
    with torch.no_grad():
        rows = [torch.tensor(ids) for ids in sequences]
        wall, processor = time.perf_counter(), time.process_time()
        result = [logprobs(row, last) for row in rows]
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        print(f"{wall:.6f} {processor:.6f}", *(f"{x:.5f}" for x in torch.cat(result).tolist()), flush=True)
