"""Requests that have arrived run together, in calls of CausalLM.generate. Bits do not depend on who shares a call."""

import collections
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import limits as lim
from .protocol import Refused
from .. import rl


@dataclass
class Sequence:
    """A choice of an answer. The thread that generates appends to it while others read."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)  # of the distribution that a token was drawn from
    pieces: list[str] = field(default_factory=list)  # of its text
    reason: str | None = None  # why it has ended; None: it has not
    stop: int | str | None = None
    plain: list[float] | None = None
    tops: list | None = None  # of its tokens, as Scores

    def clear(self):
        self.ids, self.logprobs, self.pieces = [], [], []
        self.reason = self.stop = self.plain = self.tops = None


@dataclass
class Score:
    """A token's log-probability without filters and penalties."""

    id: int
    logprob: float
    rank: int | None  # 1: it is the most probable
    top: list[tuple[int, float]]  # the most probable ids


class Job:
    """A request that waits, runs or has ended. `wake` is called in any thread when there is something new."""

    def __init__(self, request, wake):
        self.request, self.wake = request, wake
        self.sequences = [Sequence() for _ in range(len(request.prompts) * request.n)]
        self.cancelled = self.finished = False
        self.error = None
        self.left = len(self.sequences)  # sequences that have not ended
        self.prompt_scores = [None] * len(request.prompts)
        self.version = None  # of the weights

    def tokens(self):
        return sum(map(len, self.request.prompts))

    def restart(self, version):
        for sequence in self.sequences:
            sequence.clear()
        self.left, self.version = len(self.sequences), version

    def end(self, error=None):
        if not self.finished:
            self.error, self.finished = error, True
            self.wake()


class Call:
    """A call of generate. While it runs, further requests join it."""

    def __init__(self, jobs, model, version):
        self.jobs, self.model, self.version = jobs, model, version
        self.arriving: list[Job] = []
        self.kept: list[tuple[np.ndarray, Any]] = []  # what the engine kept of conversations when it began
        self.open = False
        self.longest = self.left = self.max_tokens = 0  # tokens of a prompt, sequences, and tokens of an answer, at most

    def begin(self, rows, limits):
        """Opens it. It has `rows` sequences."""
        requests = [job.request for job in self.jobs]
        longest = max(len(prompt) for request in requests for prompt in request.prompts)
        self.longest = max(longest, min(limits.context, max(lim.JOIN_TOKENS, 2 * longest)))
        self.max_tokens = max(request.max_tokens for request in requests)
        self.left = max(0, min(lim.BATCH, lim.JOIN_RESULTS // self.max_tokens) - rows)
        self.open = not any(request.waits() for request in requests)  # these wait for its end, which others would put off

    def takes(self, job):
        request = job.request
        return (
            self.open
            and not request.waits()
            and len(job.sequences) <= self.left
            and 0 < request.max_tokens <= self.max_tokens
            and max(map(len, request.prompts)) <= self.longest
            and request.key() == self.jobs[0].request.key()
        )

    def join(self, job):
        job.restart(self.version)
        self.arriving.append(job)
        self.left -= len(job.sequences)


class Engine:
    """The queue, and the threads that empty it."""

    def __init__(self, model, limits):
        self.model, self.limits, self.version = model, limits, 0
        self._queue: collections.deque[Job] = collections.deque()
        self._tokens, self._last = 0, 0.0  # of the queue: tokens of its prompts, and when the last came
        self._changed = threading.Condition()
        self._stopping = False
        self._calls: list[Call] = []
        self._kept: list[tuple[np.ndarray, Any]] = []  # ids and keys and values of the last conversations, oldest first
        self._threads = [threading.Thread(target=self._work, name=f"generate-{i}", daemon=True) for i in range(limits.parallel)]

    def start(self):
        for thread in self._threads:
            thread.start()

    def stop(self):
        """Ends the calls that run at their next token. What waits gets an error."""
        with self._changed:
            self._stopping = True
            waiting, self._queue = list(self._queue), collections.deque()
            self._changed.notify_all()
        for job in waiting:
            job.end(_STOPPED)
        for thread in self._threads:
            thread.join()
        for job in self._queue:  # they came too late to join a call
            job.end(_STOPPED)

    def submit(self, job):
        with self._changed:
            if self._stopping:
                raise _STOPPED
            if not self._queue and (call := self._call_for(job)):
                call.join(job)
                return
            if len(self._queue) >= self.limits.queue or self._tokens + job.tokens() > lim.QUEUE_TOKENS:
                raise Refused("the queue is full: try again later", status=429, code="queue_full")
            self._queue.append(job)
            self._tokens += job.tokens()
            self._last = time.monotonic()
            self._changed.notify_all()

    def _call_for(self, job):
        """A call that the job can join: with these weights, and with what is kept of its conversation, if anything is."""
        kept = [one for one in self._kept if job.request.chat and np.array_equal(one[0], job.request.prompts[0][: len(one[0])])]
        for call in self._calls:
            if call.model is self.model and call.takes(job) and all(any(one is other for other in call.kept) for one in kept):
                return call
        return None

    def cancel(self, job):
        """The job's sequences end at their next token, and it leaves the queue."""
        job.cancelled = True
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)
                self._tokens -= job.tokens()

    def replace(self, model):
        """Calls that begin from now on use this model; those that run go on with theirs. Returns the number of the weights."""
        with self._changed:
            self.model, self.version, self._kept = model, self.version + 1, []
            return self.version

    def counts(self):
        """How many requests wait, and how many run."""
        with self._changed:
            running = sum(not job.finished for call in self._calls for job in [*call.jobs, *call.arriving])
            return {"waiting": len(self._queue), "running": running}

    # ---- Keys and values of conversations

    def _keep(self, model, ids, kv):
        """Keeps those of a conversation, instead of those that it went on with."""
        with self._changed:
            if model is self.model:
                others = [one for one in self._kept if not np.array_equal(one[0], ids[: len(one[0])])]
                self._kept = [*others, (ids, kv)][-self.limits.conversations :]

    # ---- Calls

    def _work(self):
        while call := self._take():
            try:
                self._run(call)
            except BaseException as error:  # noqa: BLE001: a thread that ended would leave its requests without an answer
                for job in call.jobs:
                    job.end(error)
            with self._changed:
                self._calls.remove(call)
            del call  # the model may have been replaced meanwhile

    def _take(self):
        """A call with the oldest job and those that can share it; None at the end."""
        with self._changed:
            while not self._queue and not self._stopping:
                self._changed.wait()
            begin = time.monotonic()
            while not self._stopping and self._queue:  # others may be about to arrive
                now = time.monotonic()
                left = min(self._last + lim.GATHER, begin + lim.GATHER_MOST) - now
                if left <= 0:
                    break
                self._changed.wait(left)
            if self._stopping:
                return None
            self._calls.append(Call(self._together(), self.model, self.version))
            return self._calls[-1]

    def _together(self):
        jobs: list[Job] = []
        others: collections.deque[Job] = collections.deque()
        sequences = 0
        for job in self._queue:
            fits = sequences + len(job.sequences) <= lim.BATCH or not jobs
            if fits and (not jobs or job.request.key() == jobs[0].request.key()):
                jobs.append(job)
                sequences += len(job.sequences)
                self._tokens -= job.tokens()
            else:
                others.append(job)
        self._queue = others
        return jobs

    def _run(self, call, alone=False):
        for job in call.jobs:
            job.restart(call.version)
        try:
            if any(job.request.max_tokens for job in call.jobs):
                self._generate(call, alone)
        except (ValueError, MemoryError, RuntimeError) as error:
            if alone or self._stopping:
                raise self._refusal(error) from error
            for job in call.jobs:  # one of them is the cause, or the memory for those that might have joined it
                if not job.cancelled:
                    self._run_alone(job, call)
            return
        for job in call.jobs:
            if not job.finished and not job.cancelled:
                self._score(job, call.model)
            job.end()

    def _run_alone(self, job, call):
        try:
            if not job.finished:
                self._run(Call([job], call.model, call.version), alone=True)
        except Exception as error:  # noqa: BLE001
            job.end(error)

    def _refusal(self, error):
        if self._stopping:
            return _STOPPED
        if isinstance(error, MemoryError) and "too few" not in str(error):  # of --memory; this is the system's
            return Refused(str(error), status=503, code="out_of_memory")
        return Refused(str(error), "max_tokens" if isinstance(error, MemoryError) else None, code="generation_failed")

    def _open(self, call, rows, alone):
        with self._changed:
            if call.model is self.model:
                call.kept = list(self._kept)
                if not alone:
                    call.begin(rows, self.limits)

    def _close(self, call):
        """Requests that came too late to join it wait for another."""
        with self._changed:
            call.open = False
            self._queue.extendleft(reversed(call.arriving))
            self._tokens += sum(job.tokens() for job in call.arriving)
            call.arriving = []
            self._changed.notify_all()

    def _generate(self, call, alone):
        jobs, model = [job for job in call.jobs if job.request.max_tokens], call.model
        request = jobs[0].request
        rows = [(job, sequence) for job in jobs for sequence in job.sequences]
        stop_ids = frozenset(request.stop_ids)

        def ended(job, sequence):
            sequence.reason, sequence.stop = _reason(model, job.request, sequence, stop_ids)
            job.left -= 1
            if job.left == 0 and not job.request.waits():
                job.end()
            else:
                job.wake()

        def on_token(b, index, id, logprob):
            job, sequence = rows[b]
            if self._stopping:
                return True
            sequence.ids.append(id)
            sequence.logprobs.append(logprob)
            last = job.cancelled or index + 1 >= job.request.max_tokens
            if model.tokenizer is None:
                if last or id in stop_ids:
                    ended(job, sequence)
                elif job.request.stream:
                    job.wake()
            return "end" if last else None

        def on_text(b, text, is_last):
            job, sequence = rows[b]
            sequence.pieces.append(text)
            if is_last:
                ended(job, sequence)
            elif job.request.stream:
                job.wake()

        def on_kv(b, kv):
            job, sequence = rows[b]
            self._keep(model, np.concatenate([job.request.prompts[0], sequence.ids])[: len(kv)], kv)

        def arrivals():
            with self._changed:
                arrived, call.arriving = call.arriving, []
                call.jobs.extend(arrived)
            rows.extend((job, sequence) for job in arrived for sequence in job.sequences)
            return [one for job in arrived for one in _prompts(job)]

        self._open(call, len(rows), alone)
        prompts, numbers = zip(*(one for job in jobs for one in _prompts(job)))
        try:
            made = model.generate(
                prompts,
                samples=request.n,
                numbers=np.concatenate(numbers),
                max_tokens=max(job.request.max_tokens for job in jobs),
                min_tokens=request.min_tokens,
                stop=[*request.stop_ids, *request.stop_texts],
                on_token=on_token,
                on_text=None if model.tokenizer is None else on_text,
                kvs=[kv for _, kv in call.kept],
                on_kv=on_kv if request.chat and request.n == 1 and self.limits.conversations else None,
                arrivals=(arrivals, len(prompts) + call.left // request.n, call.longest) if call.open else None,
                **request.sampling,
            )
        finally:
            self._close(call)
        for (_, sequence), begin, end in zip(rows, made.offsets, made.offsets[1:]):
            sequence.plain = made.plain_logprobs[begin:end].tolist()

    # ---- Log-probabilities of prompts, and of the most probable tokens

    def _score(self, job, model):
        request = job.request
        if request.prompt_logprobs is not None:
            for i, prompt in enumerate(request.prompts):
                job.prompt_scores[i] = _scores(model, prompt, 1, request.prompt_logprobs, request.temperature)
        if request.logprobs:
            for i, sequence in enumerate(job.sequences):
                prompt = request.prompts[i // request.n]
                whole = np.concatenate([prompt, np.asarray(sequence.ids, np.int64)])
                sequence.tops = _scores(model, whole, len(prompt), request.logprobs, request.temperature)


def _prompts(job):
    """The prompts of a request, each with the numbers of its sequences."""
    n = job.request.n
    return [(prompt, job.request.seed + i * n + np.arange(n)) for i, prompt in enumerate(job.request.prompts)]


_STOPPED = Refused("the server is stopping", status=503, code="stopping")


def _reason(model, request, sequence, stop_ids):
    """Why a sequence has ended, and the id or the text that did it."""
    last = sequence.ids[-1]
    if last in stop_ids and len(sequence.ids) > request.min_tokens:
        return "stop", None if last in model.info["eos_ids"] else last
    if request.stop_texts and len(sequence.ids) > request.min_tokens:
        whole, before = (model.tokenizer.decode_bytes(ids) for ids in (sequence.ids, sequence.ids[:-1]))
        ends = [(whole.find(text.encode(), max(0, len(before) - len(text.encode()) + 1)), text) for text in request.stop_texts]
        found = [(begin + len(text.encode()), -len(text), text) for begin, text in ends if begin >= 0]
        if found:
            return "stop", min(found)[2]
    return "length", None


def _scores(model, ids, first, top, temperature):
    """Scores of ids[first:] after those before them."""
    if len(ids) == first:
        return []
    if not top:
        scores = model.score([ids[:first]], [ids[first:]], temperature=temperature, entropy=False, greedy=False)
        return [Score(id, logprob, None, []) for id, logprob in zip(ids[first:].tolist(), scores.logprobs.tolist())]
    rows = model.forward(ids)[first - 1 : -1]
    t = rl.token_logprobs(rows, ids[first:], temperature=temperature, rank=True, top_k=min(top, rows.shape[1]))
    columns = ids[first:].tolist(), t.logprobs.tolist(), t.rank.tolist(), t.top_ids.tolist(), t.top_logprobs.tolist()
    return [Score(id, logprob, rank + 1, list(zip(top_ids, tops))) for id, logprob, rank, top_ids, tops in zip(*columns)]
