"""Napier as a model of EleutherAI's lm-evaluation-harness: multiple choice, perplexities, and tasks that generate text.

    python -m napier.lm_eval --model_args pretrained=DIRECTORY,compute=bfloat16 --tasks arc_easy --limit 100

is the harness's own command, lm_eval, with `napier` added to its models and chosen unless --model names another. The harness
does not search for models outside itself, so the command lm_eval does not know `--model napier`. In Python, write
`import napier.lm_eval` before `lm_eval.simple_evaluate(model="napier", ...)`. Results do not depend on the batch, so the batch
size changes nothing.
"""

from __future__ import annotations

from os import PathLike
from typing import Any, Optional

if __name__ == "__main__":  # import the module instead of running a second copy, so that the model is registered once
    from napier.lm_eval import main as main

    raise SystemExit(main())

import json
import os

try:
    import lm_eval.models  # the harness imports its own models only while none is registered
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model as _register
except ImportError as error:  # without the harness, the class can still be used on its own
    TemplateLM: Any = object
    missing: Optional[ImportError] = error

    def _register(*names):
        return lambda cls: cls
else:
    missing = None

from . import _napier
from ._lm import chat_template as chat_templates, hub
from ._lm.causal_lm import CausalLM


def _special_token(model, name):
    """The id of a tokenizer's bos_token or eos_token, as in transformers and so in the harness's hf; None if it has none."""
    token = {"eos_token": "<|endoftext|>"}.get(name)  # the default of Qwen's tokenizers
    if model.directory and hub.is_gguf(model.directory):
        token = json.loads(_napier._gguf_document(model.directory, "tokenizer_config.json")).get(name)
    elif model.directory:  # None: a model in memory
        for file in ("tokenizer_config.json", "special_tokens_map.json"):
            token = chat_templates.read_json(os.path.join(model.directory, file)).get(name, token)
    if token is None:
        return None
    content = token["content"] if isinstance(token, dict) else token
    id = model.tokenizer.id_of(content)
    if id is None:
        raise ValueError(f"pretrained: the {name} of {model.directory or 'this model'}, {content!r}, is not in its tokenizer.json")
    return id


class _Generation:
    """The arguments of a request that generates text, as the harness's hf understands them."""

    _SAMPLING = ("top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed")
    _LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the first that is there counts

    def __init__(self, given, default_length):
        left = dict(given)
        lengths = [value for value in (left.pop(name, None) for name in self._LENGTHS) if value is not None]
        self.max_tokens = int(lengths[0]) if lengths else default_length
        until = left.pop("until", None) or []
        self.until = [until] if isinstance(until, str) else list(until)
        do_sample, temperature = left.pop("do_sample", None), float(left.pop("temperature", None) or 0.0)
        if do_sample and temperature == 0.0:
            raise ValueError("do_sample: true, but the temperature is 0: give one, or do_sample: false")
        self.sampling = {name: left.pop(name) for name in self._SAMPLING if left.get(name) is not None}
        self.sampling["temperature"] = 0.0 if do_sample is False else temperature
        for name, value in left.items():
            if value not in (None, False) and (name, value) not in (("num_beams", 1), ("use_cache", True)):
                raise ValueError(
                    f"{name}: {value!r} has no meaning here; generation takes until, do_sample, temperature, "
                    f"max_gen_toks, {', '.join(self._SAMPLING)}"
                )

    def cut(self, text, stops):
        """The text before the first stop."""
        for stop in stops:
            text = text.split(stop)[0] if stop else text
        return text


@_register("napier")
class NapierLM(TemplateLM):
    """A language model for the harness. pretrained: a directory, or a CausalLM; compute, memory: as in CausalLM.

    max_length: maximum of tokens in context and continuation together; default: the model's context length.
    prefix_token_id: replaces an empty context; default, as in the harness's hf: the tokenizer's bos_token, else its eos_token.
    max_gen_toks: maximum of generated tokens where the task does not say; default 256.
    chat_template_args, enable_thinking: variables of the chat template, with --apply_chat_template.
    think_end_token: a text or an id; what a model generates up to its last one is thoughts, and no part of the answer.
    batch_size, max_batch_size, device: the harness always passes them; they have no effect, because models run on the CPU.

    Examples
    --------
    >>> import napier.lm_eval
    >>> model = napier.lm_eval.NapierLM("Qwen3-0.6B", max_length=256)
    >>> model.max_length, model.model.info["layers"]
    (256, 2)
    """

    model: CausalLM
    max_length: int
    max_gen_toks: int

    def __init__(
        self,
        pretrained: str | PathLike[str] | CausalLM,
        compute: str = "float32",
        memory: int = 0,
        max_length: Any = None,
        prefix_token_id: Optional[int] = None,
        batch_size: Any = None,
        max_batch_size: Any = None,
        device: Any = None,
        max_gen_toks: int = 256,
        chat_template_args: Optional[dict[str, Any]] = None,
        enable_thinking: Optional[bool] = None,
        think_end_token: Optional[str | int] = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        for name in unknown:
            raise TypeError(
                f"{name}: not an argument of the model napier, whose are pretrained, compute, memory, max_length, "
                "prefix_token_id, max_gen_toks, chat_template_args, enable_thinking and think_end_token"
            )
        if enable_thinking and think_end_token is None:
            raise ValueError("think_end_token: missing; enable_thinking needs it, such as </think>, to find the answer")
        thinking = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        self._chat_variables = {**(chat_template_args or {}), **thinking}
        self._chat_name = None  # of the model's several templates, the one to render
        self._think_end = int(think_end_token) if str(think_end_token).isdigit() else think_end_token
        if max_length is not None and int(max_length) < 1:
            raise ValueError(f"max_length: expected 1 or more, got {max_length}")
        self.model = pretrained if isinstance(pretrained, CausalLM) else CausalLM(pretrained, compute=compute, memory=int(memory))
        self.max_gen_toks = int(max_gen_toks)
        self.max_length = int(max_length or self.model.info["positions"] or 32768)
        if self.model.tokenizer is None:
            raise ValueError(f"pretrained: {self.model.directory or 'this model'} has no tokenizer.json, and the harness gives texts")
        bos, self._eos = (_special_token(self.model, name) for name in ("bos_token", "eos_token"))
        given = None if prefix_token_id is None else int(prefix_token_id)
        self._prefix = next((id for id in (given, bos, self._eos) if id is not None), None)
        if self._prefix is None:
            raise ValueError("prefix_token_id: the tokenizer has neither bos_token nor eos_token; give one")

    @property
    def eot_token_id(self) -> Optional[int]:
        """The token that ends a document."""
        return self._eos

    @property
    def prefix_token_id(self) -> int:
        """The token that replaces an empty context."""
        return self._prefix

    @property
    def tokenizer_name(self) -> str:
        """By which the harness tells its caches of rendered requests apart."""
        return "napier__" + os.path.abspath(self.model.directory or "").replace(os.sep, "__")

    def chat_template(self, chat_template: bool | str = False) -> Optional[str]:
        """The text of the model's chat template, or of the one of this name; None if it is not to be applied. It is the one
        that apply_chat_template renders from then on.

        Examples
        --------
        >>> import napier.lm_eval
        >>> napier.lm_eval.NapierLM("Qwen3-0.6B").chat_template(False) is None
        True
        """
        self._chat_name = None
        if not chat_template:
            return None
        known = self.model.tokenizer._chat_template()[0]
        named = chat_template if isinstance(known, dict) and isinstance(chat_template, str) else None
        if named is not None and named not in known:
            raise ValueError(f"chat_template: the model has none called {named!r}; choose one of {sorted(known)}")
        self._chat_name = named
        return None if known is None else chat_templates.choose(known, named, None)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The prompt of a conversation by the model's own template. Without add_generation_prompt the model goes on with the last
        message. Where a template has no place for a system's message, it is left out, as in the harness's hf.

        Examples
        --------
        >>> import napier.lm_eval
        >>> model = napier.lm_eval.NapierLM("Qwen3-0.6B")
        >>> print(model.apply_chat_template([{"role": "user", "content": "2 + 2?"}]), end="")
        <|im_start|>user
        2 + 2?<|im_end|>
        <|im_start|>assistant
        """

        def render(messages):
            return self.model.tokenizer.apply_chat_template(
                messages,
                chat_template=self._chat_name,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
                **self._chat_variables,
            )

        without = [message for message in chat_history if message["role"] != "system"]
        try:
            return render(chat_history)
        except ValueError:
            if len(without) == len(chat_history):
                raise
        return render(without)

    def tok_encode(self, string: str, add_special_tokens: Any = None, **_: Any) -> list[int]:
        """The ids of a text. As in the harness's hf, they begin with the tokenizer's BOS, unless the text has it; Qwen has none.

        Examples
        --------
        >>> import napier.lm_eval
        >>> model = napier.lm_eval.NapierLM("Qwen3-0.6B")
        >>> model.tok_encode("2 + 2 =") == model.model.encode("2 + 2 =")
        True
        """
        return self.model.encode(string, add_special_tokens="once" if add_special_tokens is None else add_special_tokens)

    def _loglikelihood_tokens(self, requests, **_):
        """From [((context, continuation), context ids, continuation ids)] to [(log p of the continuation, is it greedy)]."""
        prompts, responses = [], []
        for texts, context, continuation in requests:
            if not continuation:
                raise ValueError(
                    f"{texts}: the continuation has no token of its own, so nothing rates it; let the context end where a token ends"
                )
            whole = (list(context) or [self.prefix_token_id]) + list(continuation)
            whole = whole[-(self.max_length + 1) :]  # the last token is rated but does not run through the model
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

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """The log-probability of whole texts, in windows of max_length tokens, with each token rated once.

        Examples
        --------
        >>> import napier.lm_eval
        >>> from lm_eval.api.instance import Instance
        >>> model = napier.lm_eval.NapierLM("Qwen3-0.6B")
        >>> request = Instance("loglikelihood_rolling", {}, ("2 + 2 = 4",), 0)
        >>> model.loglikelihood_rolling([request])[0] < 0
        True
        """
        windows, owner = [], []
        for i, request in enumerate(requests):
            ids = self.tok_encode(request.args[0], add_special_tokens=False)  # the prefix token stands before them
            for window in self._windows(ids):
                windows.append((None, *window))
                owner.append(i)
        totals = [0.0] * len(requests)
        for i, (logprob, _) in zip(owner, self._loglikelihood_tokens(windows)):
            totals[i] += logprob
        return totals

    def _windows(self, ids):
        """Yields (context, continuation). The context of the first window is the prefix token, that of the others as many
        preceding tokens as fit."""
        n = self.max_length
        for begin in range(0, len(ids), n):
            end = min(begin + n, len(ids))
            if begin == 0:
                yield [self.prefix_token_id], ids[:end]
            else:
                yield ids[max(end - n - 1, 0) : begin], ids[begin:end]

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """The texts that follow contexts, up to the first of `until` or the end of text. Greedy where the task does not sample.
        Requests that are equal get different samples; each depends only on its context, its arguments and how often that
        pair has come before.

        Examples
        --------
        >>> import napier.lm_eval
        >>> from lm_eval.api.instance import Instance
        >>> model = napier.lm_eval.NapierLM("Qwen3-0.6B")
        >>> request = Instance("generate_until", {}, ("2 + 2 =", {"until": ["."], "max_gen_toks": 4}), 0)
        >>> len(model.generate_until([request]))
        1
        """
        groups, seen, texts = {}, {}, [None] * len(requests)
        for i, request in enumerate(requests):
            context, arguments = request.args
            key = json.dumps(arguments, sort_keys=True, default=str)
            number = seen[context, key] = seen.get((context, key), -1) + 1
            groups.setdefault(key, []).append((i, context, number))
        for group in groups.values():
            for begin in range(0, len(group), self._TOGETHER):
                part = group[begin : begin + self._TOGETHER]
                arguments = requests[part[0][0]].args[1]
                for (i, context, _), text in zip(part, self._texts(part, _Generation(arguments, self.max_gen_toks))):
                    texts[i] = text
                    if getattr(self, "cache_hook", None):
                        self.cache_hook.add_partial("generate_until", (context, arguments), text)
        return texts

    _TOGETHER = 256  # requests that are generated together before they are given to the harness's cache

    def _texts(self, part, how):
        most = self.max_length - how.max_tokens  # tokens of a context
        if most < 1:
            raise ValueError(f"max_gen_toks: {how.max_tokens} leaves no context of max_length {self.max_length}")
        prompts = [(self.tok_encode(context) or [self.prefix_token_id])[-most:] for _, context, _ in part]
        ends = sorted({id for id in (self._eos, *self.model.info["eos_ids"]) if id is not None})
        eos = [] if self._eos is None else [self.model.decode([self._eos])]
        stops = how.until + [text for text in eos if text not in how.until]
        made = self.model.generate(
            prompts,
            max_tokens=how.max_tokens,
            stop=ends + [text for text in stops if text],
            numbers=[number for _, _, number in part],
            **how.sampling,
        )
        responses = (made.token_ids[a:b] for a, b in zip(made.offsets, made.offsets[1:]))
        return [how.cut(self._answer(ids), stops) for ids in responses]

    def _answer(self, ids):
        """The text of ids, without thoughts."""
        if self._think_end is None:
            return self._text(ids)
        if isinstance(self._think_end, str):
            return self._text(ids).split(self._think_end)[-1].lstrip()
        ends = [i for i, id in enumerate(ids) if id == self._think_end]
        return self._text(ids[ends[-1] + 1 :] if ends else ids).lstrip()

    def _text(self, ids):
        return self.model.tokenizer.decode(ids, skip_special=True)


def main() -> None:
    """The harness's command with this model."""
    if missing is not None:
        raise SystemExit(f"napier.lm_eval needs lm-evaluation-harness (pip install lm-eval): {missing}")
    import sys

    from lm_eval.__main__ import cli_evaluate

    command = sys.argv[1] if len(sys.argv) > 1 else None
    named = any(a in ("--model", "-M") or a.startswith("--model=") for a in sys.argv)
    if command is not None and command not in ("ls", "validate") and not named:
        place = 2 if command == "run" else 1
        sys.argv[place:place] = ["--model", "napier"]
    cli_evaluate()
