"""Actors for ray.data.Dataset.map_batches, which generate from a language model, score with it, and judge by it.

>>> ds = ray.data.read_json("prompts.jsonl")     # {"number": 0, "prompt": "2 + 2 ="}       # doctest: +SKIP
>>> ds = ds.map_batches(napier.ray.Generate, fn_constructor_kwargs={"model": "Qwen3-0.6B", "samples": 4}, batch_size=64,
...                     compute=ray.data.ActorPoolStrategy(size=8), num_cpus=4)             # doctest: +SKIP

Each actor loads the model once, and uses as many threads as Ray gives it processors (num_cpus). Results do not depend on the
number of actors, the batches or their order, nor on an actor that died and whose batches another has done again. This module
does not import ray: an actor is a class whose objects take a batch, a dict of arrays, and return one.
"""

from __future__ import annotations

import re
from os import PathLike
from typing import Any, Mapping, Optional, Sequence

import numpy as np

import napier

__all__ = ["Generate", "Judge", "Logprobs"]


class Generate:
    """Samples of each prompt: a row for each, with the columns of its prompt, and

        sample          its number among the samples of the prompt, from 0
        token_ids, logprobs, plain_logprobs    as CausalLM.generate has them
        stopped         whether an id or a text of `stop` ended it
        text            if the model has a tokenizer

    A batch that has one of these columns already is refused, so nothing is overwritten.

    Parameters
    ----------
    model : the directory of a model, on each machine
    prompt : the name of the column with the prompts, texts or lists of ids
    number : the name of the column with the number of each prompt in the dataset, from 0
        The random numbers are those of `napier generate` on a file with the prompts in this order. Greedy sequences
        (temperature 0) need no numbers.
    samples : int
    compute, memory : as CausalLM has them
    threads : int; 0: OMP_NUM_THREADS, which Ray sets to num_cpus
    **options : of CausalLM.generate: max_tokens, temperature, top_p, stop, seed and others

    Examples
    --------
    >>> import numpy as np, napier.ray
    >>> generate = napier.ray.Generate("Qwen3-0.6B", samples=2, max_tokens=4)  # what map_batches does in an actor
    >>> rows = generate({"number": np.array([0]), "prompt": np.array(["2 + 2 ="])})
    >>> sorted(rows), rows["sample"].tolist()
    (['logprobs', 'number', 'plain_logprobs', 'prompt', 'sample', 'stopped', 'text', 'token_ids'], [0, 1])
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        prompt: str = "prompt",
        number: str = "number",
        samples: int = 1,
        compute: str = "float32",
        memory: int = 0,
        threads: int = 0,
        **options: Any,
    ) -> None:
        for name in ("numbers", "on_token", "on_text", "kvs", "texts"):
            if name in options:
                raise TypeError(f"{name}: not an option of napier.ray.Generate")
        _use_threads(threads)
        self.model = napier.CausalLM(model, compute=compute, memory=memory)
        self.prompt, self.number, self.samples, self.options = prompt, number, samples, options

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        prompts = _texts_or_ids(batch, self.prompt)
        has_text = self.model.tokenizer is not None
        _refuse_columns(batch, ("sample", "token_ids", "logprobs", "plain_logprobs", "stopped") + ("text",) * has_text)
        count = len(prompts)
        made = (
            self.model.generate(prompts, samples=self.samples, numbers=self._numbers(batch), texts=has_text, **self.options)
            if count
            else None
        )
        result = {name: np.repeat(np.asarray(column), self.samples, axis=0) for name, column in batch.items()}
        result["sample"] = np.tile(np.arange(self.samples), count)
        for name in ("token_ids", "logprobs", "plain_logprobs"):
            result[name] = _lists(getattr(made, name), made.offsets) if count else np.empty(0, object)
        result["stopped"] = made.stopped if count else np.empty(0, bool)
        if has_text:
            result["text"] = np.array(made.texts if count else [], object)
        return result

    def _numbers(self, batch):
        if self.number not in batch:
            if self.options.get("temperature", 1.0) == 0:
                return None
            raise ValueError(
                f"number: the batch has no column {self.number!r}; the random numbers of a sample follow from its "
                "prompt's number in the dataset, from 0, because batches come in any order"
            )
        numbers = np.asarray(batch[self.number])
        if numbers.dtype.kind not in "iu":
            raise ValueError(f"number: column {self.number!r} has {numbers.dtype}, not integers")
        numbers = numbers.astype(np.int64)
        return (numbers[:, None] * self.samples + np.arange(self.samples)).ravel()


class Logprobs:
    """Log-probabilities of one response to each prompt: the columns of the batch, and

        token_ids, logprobs, entropies    a list for each response
        sum             of the logprobs, float64
        is_greedy       whether each token is the most probable one

    A batch that has one of these columns already is refused, so nothing is overwritten.

    Parameters
    ----------
    model, compute, memory, threads : as Generate has them
    prompt, response : the names of the columns, with texts or lists of ids
    **options : of CausalLM.score: temperature, prefix_token

    Examples
    --------
    >>> import numpy as np, napier.ray
    >>> score = napier.ray.Logprobs("Qwen3-0.6B")
    >>> rows = score({"prompt": np.array(["2 + 2 ="]), "response": np.array([" 4"])})
    >>> rows["sum"].shape, bool(rows["sum"][0] < 0)
    ((1,), True)
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        prompt: str = "prompt",
        response: str = "response",
        compute: str = "float32",
        memory: int = 0,
        threads: int = 0,
        **options: Any,
    ) -> None:
        for name in options:
            if name not in ("temperature", "prefix_token"):
                raise TypeError(f"{name}: not an option of napier.ray.Logprobs")
        _use_threads(threads)
        self.model = napier.CausalLM(model, compute=compute, memory=memory)
        self.prompt, self.response, self.options = prompt, response, options

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        prompts, responses = _texts_or_ids(batch, self.prompt), _texts_or_ids(batch, self.response)
        _refuse_columns(batch, ("token_ids", "logprobs", "entropies", "sum", "is_greedy"))
        scores = self.model.score(prompts, responses, **self.options)
        result = {name: np.asarray(column) for name, column in batch.items()}
        result["token_ids"] = _lists(scores.token_ids, scores.offsets)
        result["logprobs"] = _lists(scores.logprobs, scores.offsets)
        result["entropies"] = _lists(scores.entropy, scores.offsets)
        result["sum"] = np.array([_sum(row) for row in result["logprobs"]], np.float64)
        result["is_greedy"] = np.array([bool(row.all()) for row in _lists(scores.is_greedy, scores.offsets)], bool)
        return result


class Judge:
    """The model as judge of one response to each prompt, by criteria in words: the columns of the batch, and

        scores          a list, float32: for each criterion its weight times the expected value of the verdict
        reward          their sum

    They have the bits of `napier judge`. A batch that has one of these columns already is refused, so nothing is overwritten.

    Parameters
    ----------
    model, compute, memory, threads : as Generate has them
    criteria : list of texts, or of {"criterion": text, "weight": number}, as the program's file has them
    verdicts : dict of text to value
        What the model may answer, and what it is worth.
    template : the question, with {prompt}, {response} and {criterion} in it; default: that of the program
    chat : format of Tokenizer.chat for the question, or None: the verdict follows the question at once
    prompt, response : the names of the columns, with texts
    temperature : float

    Examples
    --------
    >>> import numpy as np, napier.ray
    >>> judge = napier.ray.Judge("Qwen3-0.6B", ["The answer is right.", "The answer is short."])
    >>> rows = judge({"prompt": np.array(["2 + 2?"]), "response": np.array(["4"])})
    >>> rows["scores"][0].shape, bool(0 < rows["reward"][0] < 2)
    ((2,), True)
    """

    _QUESTION = (
        "Question:\n{prompt}\n\nAnswer:\n{response}\n\nCriterion: {criterion}\nDoes the answer meet the criterion? Reply with Yes or No.\n"
    )

    def __init__(
        self,
        model: str | PathLike[str],
        criteria: Sequence[str | Mapping[str, Any]],
        *,
        verdicts: Optional[Mapping[str, float]] = None,
        template: Optional[str] = None,
        chat: Optional[str] = "qwen3",
        prompt: str = "prompt",
        response: str = "response",
        temperature: float = 1.0,
        compute: str = "float32",
        memory: int = 0,
        threads: int = 0,
    ) -> None:
        if not isinstance(criteria, (list, tuple)) or not criteria:
            raise ValueError(f"criteria: expected a list of at least one text, got {criteria!r}")
        criteria = [{"criterion": c} if isinstance(c, str) else c for c in criteria]
        for i, c in enumerate(criteria):
            if not isinstance(c, dict) or not isinstance(c.get("criterion"), str) or set(c) - {"criterion", "weight"}:
                raise ValueError(f"criteria[{i}]: expected a text, or a dict with criterion and weight, got {c!r}")
        self.criteria = [c["criterion"] for c in criteria]
        self.weights = [float(c.get("weight", 1.0)) for c in criteria]
        self.verdicts = {"Yes": 1.0, "No": 0.0} if verdicts is None else dict(verdicts)
        self.template = self._QUESTION if template is None else template
        self.chat, self.prompt, self.response, self.temperature = chat, prompt, response, temperature
        _use_threads(threads)
        self.model = napier.CausalLM(model, compute=compute, memory=memory)
        if self.model.tokenizer is None:
            raise ValueError(f"model: {model!r} has no tokenizer, which questions need")

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        prompts, responses = (_texts(batch, name) for name in (self.prompt, self.response))
        _refuse_columns(batch, ("scores", "reward"))
        questions = [self._question(p, r, c) for p, r in zip(prompts, responses) for c in self.criteria]
        result = {name: np.asarray(column) for name, column in batch.items()}
        scores, rewards = np.empty((0, 0), np.float32), np.empty(0, np.float32)
        if questions:
            scores, rewards, _ = self.model.judge(
                questions,
                list(self.verdicts),
                list(self.verdicts.values()),
                weights=self.weights,
                criteria=len(self.criteria),
                temperature=self.temperature,
            )
        result["scores"] = _lists(scores.ravel(), np.arange(len(prompts) + 1) * len(self.criteria))
        result["reward"] = rewards
        return result

    def _question(self, prompt, response, criterion):
        parts = {"{prompt}": prompt, "{response}": response, "{criterion}": criterion}
        text = re.sub(r"\{(?:prompt|response|criterion)\}", lambda name: parts[name[0]], self.template)
        if self.chat is None:
            return text
        message = [{"role": "user", "content": text}]
        return self.model.encode(napier.Tokenizer.chat(message, format=self.chat, disable_thinking=self.chat == "qwen3"))


def _use_threads(threads):
    if threads:
        napier.set_num_threads(threads)


def _refuse_columns(batch, made):
    for name in made:
        if name in batch:
            raise ValueError(f"the batch has a column {name!r} already, which a result would overwrite (rename or drop it)")


def _texts_or_ids(batch, name):
    if name not in batch:
        raise ValueError(f"the batch has no column {name!r}, but {', '.join(map(repr, batch)) or 'none'}")
    return [x if isinstance(x, (str, bytes)) else np.asarray(x) for x in batch[name]]


def _texts(batch, name):
    texts = _texts_or_ids(batch, name)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{name}: expected texts, got {text!r}")
    return texts


def _lists(values, offsets):
    """An array of arrays: values[offsets[i]:offsets[i + 1]]."""
    lists = np.empty(len(offsets) - 1, object)
    for i in range(len(lists)):
        lists[i] = values[offsets[i] : offsets[i + 1]]
    return lists


def _sum(logprobs):
    """In double, from left to right, as napier logprobs."""
    total = 0.0
    for x in logprobs.tolist():
        total += x
    return total
