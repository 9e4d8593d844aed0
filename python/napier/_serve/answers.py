"""Answers in OpenAI's shape, with what vLLM adds to it."""

import time

LEAST = -9999.0  # in place of -inf, which JSON has not; as in vLLM


def _number(logprob):
    return max(logprob, LEAST)


class Writer:
    """Writes the answer of a job, whole or in chunks."""

    def __init__(self, job, model, name, id):
        self.job, self.request, self.model = job, job.request, model
        kind = ("chat.completion.chunk" if self.request.stream else "chat.completion") if self.request.chat else "text_completion"
        self._head = {"id": id, "object": kind, "created": int(time.time()), "model": name}
        self._sent = [[0, 0] for _ in job.sequences]  # pieces and ids
        self._over = [False] * len(job.sequences)

    def _whole(self, choices, **more):
        # weights-N: how many times the weights had been changed
        return {**self._head, "system_fingerprint": f"weights-{self.job.version}", "seed": self.request.seed, "choices": choices, **more}

    def usage(self):
        prompt = self.job.tokens()
        answer = sum(len(sequence.ids) for sequence in self.job.sequences)
        return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}

    # ---- Tokens

    def _name(self, id):
        if self.request.names_are_ids or self.model.tokenizer is None:
            return f"token_id:{id}"
        token = self._bytes(id)
        try:
            return token.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)

    def _bytes(self, id):
        return (self.model.tokenizer and self.model.tokenizer.token(id)) or b""

    def _chat_entry(self, id, logprob, top):
        def entry(id, logprob):
            return {"token": self._name(id), "logprob": _number(logprob), "bytes": list(self._bytes(id))}

        return {**entry(id, logprob), "top_logprobs": [entry(*one) for one in top]}

    def _logprobs(self, i):
        """Of a choice."""
        request, sequence = self.request, self.job.sequences[i]
        if request.logprobs is None:
            return None
        values = sequence.logprobs if request.sampling["temperature"] else sequence.plain or []
        tops = [score.top for score in sequence.tops] if sequence.tops else [[] for _ in sequence.ids]
        rows = list(zip(sequence.ids, values, tops))
        if request.chat:
            return {"content": [self._chat_entry(*row) for row in rows]}
        if request.echo:
            prompt = request.prompts[i // request.n]
            scores = self.job.prompt_scores[i // request.n]
            rows = [(int(prompt[0]), None, None), *((s.id, s.logprob, s.top) for s in scores), *rows]
        return self._completion_logprobs(rows)

    def _completion_logprobs(self, rows):
        names, values, tops, offsets, at = [], [], [], [], 0
        for id, logprob, top in rows:
            names.append(self._name(id))
            values.append(None if logprob is None else _number(logprob))
            others = {self._name(i): _number(x) for i, x in top or ()}
            tops.append(None if logprob is None else {**others, names[-1]: values[-1]})
            offsets.append(at)
            at += len(self._bytes(id).decode(errors="replace"))
        return {"tokens": names, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}

    def _prompt_logprobs(self, prompt):
        def entry(id, logprob, rank):
            return {"logprob": _number(logprob), "rank": rank, "decoded_token": self._name(id)}

        scores = self.job.prompt_scores[prompt]
        places = [{str(id): entry(id, x, rank) for rank, (id, x) in enumerate(s.top, 1)} for s in scores]
        for place, s in zip(places, scores):
            place[str(s.id)] = entry(s.id, s.logprob, s.rank)
        return [None, *places]

    # ---- A whole answer

    def answer(self):
        return self._whole([self._choice(i) for i in range(len(self.job.sequences))], usage=self.usage(), **self._of_chat())

    def _of_chat(self):
        """What vLLM puts beside the choices of a chat."""
        if not self.request.chat:
            return {}
        more = {}
        if self.request.shows_prompt:
            more["prompt_logprobs"] = self._prompt_logprobs(0)
        if self.request.token_ids:
            more["prompt_token_ids"] = self.request.prompts[0].tolist()
        return more

    def _choice(self, i):
        request, sequence = self.request, self.job.sequences[i]
        prompt, text = i // request.n, "".join(sequence.pieces)
        choice = {"index": i, "logprobs": self._logprobs(i), **self._end(sequence)}
        if request.chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            given = request.prompts[prompt]
            choice["text"] = (self.model.decode(given) if request.echo and self.model.tokenizer else "") + text
            if request.shows_prompt:
                choice["prompt_logprobs"] = self._prompt_logprobs(prompt)
            if request.token_ids:
                choice["prompt_token_ids"] = given.tolist()
        if request.token_ids:
            choice["token_ids"] = sequence.ids
        return choice

    def _end(self, sequence):
        plain = {"plain_logprobs": [_number(x) for x in sequence.plain or []]} if self.request.plain else {}
        return {"finish_reason": sequence.reason or "length", "stop_reason": sequence.stop, **plain}

    # ---- A stream

    def _part(self, text, role=False):
        if not self.request.chat:
            return {"text": text}
        return {"delta": {**({"role": "assistant"} if role else {}), "content": text}}

    def begin(self):
        """The chunks before the first token."""
        for i in range(len(self.job.sequences)):
            first = {"index": i, **self._part("", True), "logprobs": None, "finish_reason": None}
            if self.request.token_ids and not self.request.chat:
                first["prompt_token_ids"] = self.request.prompts[i // self.request.n].tolist()
            if self.request.chat or len(first) > 4:
                yield self._whole([first], **self._of_chat_begin(i))

    def _of_chat_begin(self, i):
        return {"prompt_token_ids": self.request.prompts[0].tolist()} if self.request.chat and self.request.token_ids and i == 0 else {}

    def news(self):
        """The chunks of what has come since the last call. Log-probabilities come with a choice's last chunk."""
        for i, sequence in enumerate(self.job.sequences):
            if self._over[i]:
                continue
            last = sequence.reason is not None and (self.job.finished or not self.request.waits())  # before what it ended with
            ids, pieces = len(sequence.ids), len(sequence.pieces)
            text = "".join(sequence.pieces[self._sent[i][0] : pieces])
            if not text and not last and not (self.model.tokenizer is None and ids > self._sent[i][1]):
                continue
            choice = {"index": i, **self._part(text), "logprobs": None, "finish_reason": None}
            if self.request.token_ids:
                choice["token_ids"] = sequence.ids[self._sent[i][1] : ids]
            if last:
                choice.update(logprobs=self._logprobs(i), **self._end(sequence))
                if self.request.shows_prompt:
                    choice["prompt_logprobs"] = self._prompt_logprobs(i // self.request.n)
            self._sent[i], self._over[i] = [pieces, ids], last
            yield self._whole([choice])

    def end(self):
        if self.request.usage:
            yield self._whole([], usage=self.usage())
