"""The same lines as napier_worker.c, answered by transformers: transformers_worker.py DIRECTORY f32|bf16 THREADS.

Responses are scored one by one, each with its prompt before it; the head computes the rows that are wanted
(logits_to_keep).
"""
import sys
import time

import torch
from transformers import Qwen3ForCausalLM

directory, mode, threads = sys.argv[1:4]
torch.set_num_threads(int(threads))
model = Qwen3ForCausalLM.from_pretrained(directory, dtype=torch.float32 if mode == "f32" else torch.bfloat16).eval()
vocabulary = model.config.vocab_size


def logprobs(ids, last):
    """Of the last tokens; of all but the first where last is 0."""
    logits = model(ids[None], logits_to_keep=last + 1 if last else 0).logits[0, :-1]
    return torch.log_softmax(logits.float(), -1).gather(1, ids[-logits.shape[0]:, None])


print("ready", flush=True)
for line in sys.stdin:
    word, *numbers = line.split()
    numbers = [int(n) for n in numbers]
    with torch.no_grad():
        prompt, response, count = (numbers[0], 0, 1) if word == "all" else numbers[:3]
        ids = torch.randint(0, vocabulary, (count, prompt + response))
        wall, processor = time.perf_counter(), time.process_time()
        for row in ids:
            logprobs(row, response)
        print(f"{time.perf_counter() - wall:.6f} {time.process_time() - processor:.6f}", flush=True)
