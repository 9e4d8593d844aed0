"""transformers: responses one by one, each with its prompt before it; the head computes the rows that are wanted."""
import functools

import torch
import transformers

VERSION = transformers.__version__
KINDS = {"f32": torch.float32, "bf16": torch.bfloat16}
start = torch.set_num_threads
torch.set_grad_enabled(False)


@functools.cache
def model(path, kind):
    return transformers.Qwen3ForCausalLM.from_pretrained(path, dtype=KINDS[kind]).eval()


def score(job):
    prompt, responses = (torch.from_numpy(job.arrays[name]).view(torch.int32).long() for name in ("prompt", "responses"))
    rows = [torch.cat([prompt, ids]) for ids in responses.view(-1, job.response)]

    def logprobs(of, ids):
        logits = of(ids[None], logits_to_keep=job.response + 1).logits[0, :-1]
        return torch.log_softmax(logits.float(), -1).gather(1, ids[-job.response:, None])[:, 0]

    def way(kind):
        of = model(job.model, kind)
        return lambda: {"logprobs": torch.cat([logprobs(of, ids) for ids in rows])}

    return {f"transformers_{kind}": way(kind) for kind in KINDS}


OPERATIONS = {"score": score}
