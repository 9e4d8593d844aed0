"""napier.Qwen3 and napier.lm_eval against transformers and lm-evaluation-harness's own class, in float32, on a small random
model."""
import os
import tempfile

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

import model_data
import napier
from napier.lm_eval import NapierLM, missing

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENIZER = os.path.join(os.path.dirname(HERE), "support", "tiny_tokenizer.json")
PAIRS = [("the cat", " sat on the mat"), ("the cat", " ran"), ("", "An empty context."), ("Question: 2+2?\nAnswer:", " 4"),
         ("Question: 2+2?\nAnswer:", " 5 or more"), ("a b c d e f g", " h"), ("naïve", " ☃ 漢字")]


class Skip(Exception):
    """This test cannot be run here."""


def both():
    """transformers' model, and the same from a directory."""
    model = model_data.make(bos_token_id=278, eos_token_id=278)
    folder = tempfile.TemporaryDirectory()
    model_data.save(model, folder.name)
    with open(TOKENIZER, "rb") as source, open(os.path.join(folder.name, "tokenizer.json"), "wb") as target:
        target.write(source.read())
    mine = napier.Qwen3.from_pretrained(folder.name)
    mine.folder = folder  # weights are mapped: it goes when the model goes
    return model, mine


def test_logits_and_logprobs():
    theirs, mine = both()
    ids = mine.encode("The quick brown fox jumps over the lazy dog")
    with torch.no_grad():
        logits = theirs(torch.tensor([ids])).logits[0].numpy()
    worst = np.abs(mine.forward(ids) - logits).max()
    assert worst < 1e-3, worst
    wanted = torch.log_softmax(torch.from_numpy(logits).double(), -1)[torch.arange(3, len(ids) - 1), ids[4:]]
    off = np.abs(mine.logprobs_for(ids[:4], ids[4:]) - wanted.numpy()).max()
    assert off < 1e-4, off
    return f"logits within {worst:.1e}, log-probabilities {off:.1e}"


def test_the_harness():
    if missing is not None:
        raise Skip(f"no lm-evaluation-harness: {missing}")
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    theirs, mine = both()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=TOKENIZER, eos_token="<|endoftext|>", pad_token="<|endoftext|>",
                                        clean_up_tokenization_spaces=False)
    hf = HFLM(pretrained=theirs, tokenizer=tokenizer, device="cpu", batch_size=2, max_length=512)
    ours = NapierLM(mine)
    requests = [Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=i) for i, pair in enumerate(PAIRS)]
    worst = 0.0
    for pair, (a, greedy_a), (b, greedy_b) in zip(PAIRS, ours.loglikelihood(requests), hf.loglikelihood(requests)):
        worst = max(worst, abs(a - b))
        assert abs(a - b) < 1e-3 and greedy_a == greedy_b, (pair, a, b)
    texts = [Instance(request_type="loglikelihood_rolling", doc={}, arguments=(c + t,), idx=i) for i, (c, t) in enumerate(PAIRS)]
    for a, b in zip(ours.loglikelihood_rolling(texts), hf.loglikelihood_rolling(texts)):
        b = b[0] if isinstance(b, tuple) else b
        worst = max(worst, abs(a - b))
        assert abs(a - b) < 1e-3, (a, b)
    return f"{len(PAIRS)} requests and texts within {worst:.1e}"
