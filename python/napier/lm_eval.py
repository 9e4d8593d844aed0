"""Napier as a model of EleutherAI's lm-evaluation-harness: multiple-choice tasks and perplexities by log-probabilities.

    python -m napier.lm_eval --model_args pretrained=DIRECTORY,compute=bfloat16 --tasks arc_easy --limit 100

is the harness's own command (lm_eval), with `napier` among its models. Results do not depend on the batch, so there is no batch
size to choose. Tasks that generate text are refused: this is no chat engine.
"""
if __name__ == "__main__":  # the module itself, not a copy of it: a model is registered once
    from napier.lm_eval import main

    raise SystemExit(main())

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model as _register
except ImportError as error:  # the harness is not here: the class can still be used by itself
    TemplateLM, missing = object, error

    def _register(*names):
        return lambda cls: cls
else:
    missing = None

from ._qwen3 import Qwen3


@_register("napier")
class NapierLM(TemplateLM):
    """A Qwen3 for the harness. pretrained: a directory, or a Qwen3.

    max_length: tokens of context and continuation together; default: what the model was made for.
    """

    def __init__(self, pretrained, compute="float32", memory=0, max_length=None, **_):
        super().__init__()
        self.model = pretrained if isinstance(pretrained, Qwen3) else Qwen3(pretrained, compute=compute, memory=int(memory))
        self.max_length = int(max_length or self.model.info["positions"] or 32768)

    @property
    def eot_token_id(self):
        """What ends a document; it also stands in for an empty context."""
        info = self.model.info
        return info["eos"] if info["eos"] >= 0 else info["bos"]

    @property
    def prefix_token_id(self):
        info = self.model.info
        return info["bos"] if info["bos"] >= 0 else info["eos"]

    @property
    def tokenizer_name(self):
        return "napier"

    def tok_encode(self, string, add_special_tokens=None, **_):
        """The ids of a text; nothing is added, as Qwen's models have no BOS."""
        return self.model.encode(string)

    def _loglikelihood_tokens(self, requests, **_):
        """[((context, continuation), context ids, continuation ids)] to [(log p of the continuation, is it greedy?)]."""
        prompts, responses = [], []
        for _, context, continuation in requests:
            whole = (list(context) or [self.prefix_token_id]) + list(continuation)
            whole = whole[-(self.max_length + 1):]  # the last token is rated and not run
            cut = len(whole) - len(continuation)
            if cut < 1:
                raise ValueError(f"a continuation of {len(continuation)} tokens is longer than max_length {self.max_length}")
            prompts.append(whole[:cut])
            responses.append(whole[cut:])
        if not requests:
            return []
        scores = self.model.score(prompts, responses, entropy=False)
        results = []
        for begin, end in zip(scores.offsets[:-1], scores.offsets[1:]):
            results.append((float(scores.logprobs[begin:end].sum(dtype="f8")), bool(scores.is_greedy[begin:end].all())))
        for request, result in zip(requests, results):
            if request[0] is not None and getattr(self, "cache_hook", None):
                self.cache_hook.add_partial("loglikelihood", request[0], result)
        return results

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        """log p of whole texts, in windows of max_length tokens, each token rated once."""
        windows, owner = [], []
        for i, request in enumerate(requests):
            for window in self._windows(self.tok_encode(request.args[0])):
                windows.append((None, *window))
                owner.append(i)
        totals = [0.0] * len(requests)
        for i, (logprob, _) in zip(owner, self._loglikelihood_tokens(windows)):
            totals[i] += logprob
        return totals

    def _windows(self, ids):
        """(context, continuation): the first window after the prefix token; later ones see as much before them as fits."""
        n = self.max_length
        for begin in range(0, len(ids), n):
            end = min(begin + n, len(ids))
            if begin == 0:
                yield [self.prefix_token_id], ids[:end]
            else:
                yield ids[max(end - n - 1, 0):begin], ids[begin:end]

    def generate_until(self, requests, disable_tqdm=False):
        raise NotImplementedError("napier.lm_eval: no text is generated here; choose tasks by log-probabilities")


def main():
    """The harness's command with this model."""
    if missing is not None:
        raise SystemExit(f"napier.lm_eval needs lm-evaluation-harness (pip install lm-eval): {missing}")
    import sys

    from lm_eval.__main__ import cli_evaluate

    if not any(a == "--model" or a.startswith("--model=") for a in sys.argv):
        sys.argv[1:1] = ["--model", "napier"]
    cli_evaluate()
