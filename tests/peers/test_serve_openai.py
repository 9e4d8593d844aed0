"""napier serve with OpenAI's own client: answers are those of a direct call, bit for bit, also of many clients at once."""
import asyncio
import json
import pathlib
import random
import tempfile
import threading

import httpx
import numpy as np
import openai

import napier
from napier._serve import protocol
from napier._serve.batching import Engine, Job
from napier._serve.limits import Limits
from serving import NAME, Server, direct, wait_for, write_model
from support import raises

PROMPTS = ["Hello, world", "the end", "2 + 2 =", " a\n\u4e2d", "<|im_start|>user\nhi<|im_end|>\n"]


def client_of(server, kind=openai.OpenAI):
    return kind(base_url=server.address + "/v1", api_key="none", max_retries=0, timeout=120)


def of_choice(choice):
    return choice.token_ids, choice.logprobs.token_logprobs, choice.text


def ask(client, prompt, *, seed=0, logprobs=0, extra=None, **options):
    return client.completions.create(model=NAME, prompt=prompt, seed=seed, logprobs=logprobs,
                                     extra_body={"return_token_ids": True, **(extra or {})}, **options)


def test_completions():
    with Server() as server:
        client = client_of(server)
        assert [one.id for one in client.models.list()] == [NAME]
        for prompt in [*PROMPTS, [5, 6, 7], [[5, 6], [9]], PROMPTS[:3]]:
            for options, others in (({"temperature": 0.7, "max_tokens": 20}, {}), ({"top_p": 0.8}, {"top_k": 12, "min_p": 0.02}),
                                    ({"presence_penalty": 0.5, "frequency_penalty": 0.25}, {"repetition_penalty": 1.3})):
                many = prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]
                answer = ask(client, prompt, seed=3, n=2, extra={**others, "plain_logprobs": True}, **options)
                assert [choice.index for choice in answer.choices] == list(range(2 * len(many)))
                for i, one in enumerate(many):
                    wanted = direct(server.model, one, 3 + 2 * i, 2, **options, **others)
                    for choice, (ids, logprobs, plain, text, stop) in zip(answer.choices[2 * i:], wanted):
                        assert of_choice(choice) == (ids, logprobs, text) and choice.plain_logprobs == plain
                        assert choice.finish_reason == ("length" if stop is None else "stop")
                        assert choice.prompt_token_ids == (server.model.encode(one) if isinstance(one, str) else one)
                assert answer.usage.completion_tokens == sum(len(choice.token_ids) for choice in answer.choices)
        seeds = {ask(client, "x", seed=openai.omit).seed for _ in range(3)}
        assert len(seeds) == 3  # drawn, and told


def test_greedy_has_logprobs():
    with Server() as server:
        answer = ask(client_of(server), PROMPTS[0], temperature=0, max_tokens=12)
        ids, _, plain, text, _ = direct(server.model, PROMPTS[0], 0, temperature=0, max_tokens=12)[0]
        assert of_choice(answer.choices[0]) == (ids, plain, text)


def test_chat():
    with Server() as server:
        client, talk = client_of(server), [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}, {"role": "user", "content": "?"}]
        text = server.model.tokenizer.apply_chat_template(talk, add_generation_prompt=True)
        answer = client.chat.completions.create(model=NAME, messages=talk, seed=5, n=3, logprobs=True, top_logprobs=2, max_completion_tokens=9)
        assert answer.usage.prompt_tokens == len(server.model.encode(text))
        for choice, (ids, logprobs, _, text, _) in zip(answer.choices, direct(server.model, text, 5, 3, max_tokens=9)):
            assert choice.message.content == text and [entry.logprob for entry in choice.logprobs.content] == logprobs
            assert [bytes(entry.bytes) for entry in choice.logprobs.content] == [server.model.tokenizer.token(id) for id in ids]
            assert all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)
        parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}, *talk[1:]]
        again = client.chat.completions.create(model=NAME, messages=parts, seed=5, max_completion_tokens=9)
        assert again.choices[0].message.content == answer.choices[0].message.content
        raises(openai.BadRequestError, "only text", lambda: client.chat.completions.create(
            model=NAME, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]))


def test_turns():
    """Conversations that take turns: each answer is that of the whole conversation at once, whether its keys were kept or not."""
    with Server("--conversations", "2") as server, client_of(server) as client:
        talks = [[{"role": "user", "content": f"Hello {i}, " * 9}] for i in range(3)]
        for turn in range(4):
            for i, talk in enumerate(talks[: 2 + turn % 2]):
                got = client.chat.completions.create(model=NAME, messages=talk, max_tokens=9, seed=i).choices[0].message.content
                text = server.model.tokenizer.apply_chat_template(talk, add_generation_prompt=True)
                wanted = direct(server.model, text, i, max_tokens=9)[0][3]
                assert got == wanted, (turn, i, got, wanted)
                talk += [{"role": "assistant", "content": got}, {"role": "user", "content": f"And {turn}?"}]


def test_streams():
    """The pieces of a stream are the whole answer; usage comes last."""
    with Server() as server:
        client = client_of(server)
        whole = ask(client, PROMPTS[:2], seed=8, n=2, max_tokens=60, extra={"plain_logprobs": True})
        texts, ids, logprobs, plain, reasons, usage = [""] * 4, [[], [], [], []], [None] * 4, [None] * 4, [None] * 4, None
        for chunk in ask(client, PROMPTS[:2], seed=8, n=2, max_tokens=60, stream=True, stream_options={"include_usage": True},
                         extra={"plain_logprobs": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                i = choice.index
                texts[i] += choice.text
                ids[i] += getattr(choice, "token_ids", None) or []
                if choice.finish_reason:
                    reasons[i], logprobs[i], plain[i] = choice.finish_reason, choice.logprobs.token_logprobs, choice.plain_logprobs
        assert usage == whole.usage
        for i, choice in enumerate(whole.choices):
            assert (ids[i], logprobs[i], texts[i]) == of_choice(choice)
            assert (reasons[i], plain[i]) == (choice.finish_reason, choice.plain_logprobs)
        talk = [{"role": "user", "content": "hi"}]
        whole = client.chat.completions.create(model=NAME, messages=talk, seed=5, max_completion_tokens=30)
        parts = list(client.chat.completions.create(model=NAME, messages=talk, seed=5, max_completion_tokens=30, stream=True))
        assert "".join(part.choices[0].delta.content or "" for part in parts) == whole.choices[0].message.content
        assert parts[0].choices[0].delta.role == "assistant"


def test_stops():
    with Server() as server:
        client = client_of(server)
        free = direct(server.model, "hi", 0, 16, max_tokens=40, stop=[], temperature=1.3)
        stops = [text[5:7] for _, _, _, text, _ in free if "\ufffd" not in text[5:7]][:4]
        for extra, stop in (({}, stops), ({"stop_token_ids": [11, 90]}, stops), ({"min_tokens": 12}, stops), ({"stop_token_ids": [11]}, None),
                            ({"ignore_eos": True}, None)):
            ids = [*([] if "ignore_eos" in extra else server.model.info["eos_ids"]), *extra.get("stop_token_ids", [])]
            wanted = direct(server.model, "hi", 0, 16, max_tokens=40, stop=[*ids, *(stop or [])], temperature=1.3, min_tokens=extra.get("min_tokens", 0))
            answer = ask(client, "hi", n=16, max_tokens=40, temperature=1.3, stop=stop, extra=extra)
            for choice, (ids, logprobs, _, text, why) in zip(answer.choices, wanted):
                assert of_choice(choice) == (ids, logprobs, text) and choice.finish_reason == ("length" if why is None else "stop")
                assert choice.stop_reason == (None if why in server.model.info["eos_ids"] else why)


def test_logprobs_of_prompts_and_of_other_tokens():
    with Server() as server:
        client, model = client_of(server), server.model
        ids = model.encode(PROMPTS[0])
        for temperature in (1.0, 0.6):
            answer = ask(client, PROMPTS[0], max_tokens=6, logprobs=3, temperature=temperature, extra={"prompt_logprobs": 2})
            choice, whole = answer.choices[0], ids + answer.choices[0].token_ids
            rows = napier.token_logprobs(model.forward(whole)[:-1], whole[1:], temperature=temperature, top_k=3, rank=True)
            assert choice.prompt_logprobs[0] is None and len(choice.prompt_logprobs) == len(ids)
            for i, place in enumerate(choice.prompt_logprobs[1:]):
                assert place[str(ids[i + 1])]["logprob"] == rows.logprobs[i]
                for rank, (id, logprob) in enumerate(zip(rows.top_ids[i][:2].tolist(), rows.top_logprobs[i].tolist()), 1):
                    assert (place[str(id)]["logprob"], place[str(id)]["rank"]) == (logprob, rank)
            assert choice.logprobs.token_logprobs == rows.logprobs[len(ids) - 1:].tolist()
            for top, wanted in zip(choice.logprobs.top_logprobs, rows.top_logprobs[len(ids) - 1:].tolist()):
                assert sorted(top.values(), reverse=True)[:3] == wanted
            scored = ask(client, PROMPTS[0], max_tokens=0, temperature=temperature, extra={"prompt_logprobs": 0}).choices[0]
            assert [place[str(id)]["logprob"] for place, id in zip(scored.prompt_logprobs[1:], ids[1:])] == rows.logprobs[:len(ids) - 1].tolist()
        echoed = ask(client, PROMPTS[0], max_tokens=2, logprobs=1, echo=True, temperature=0).choices[0]
        assert echoed.text.startswith(PROMPTS[0]) and len(echoed.logprobs.tokens) == len(ids) + 2
        assert echoed.logprobs.token_logprobs[0] is None and echoed.logprobs.token_logprobs[1:len(ids)] == model.logprobs_for(ids[:1], ids[1:]).tolist()


def test_many_clients_at_once():
    """Whatever shares a batch with a request changes no bit of its answer."""
    dice = random.Random(1)
    kinds = [{}, {"temperature": 0.7}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 0.0}]

    def request():
        prompt = [dice.randrange(270) for _ in range(dice.randrange(1, 60))]
        return prompt, dice.randrange(1000), dice.choice((1, 1, 1, 3)), {**dice.choice(kinds), "max_tokens": dice.randrange(1, 90)}

    async def one(client, prompt, seed, n, options):
        if dice.random() < 0.3:
            texts = [""] * n
            async for chunk in await ask(client, prompt, seed=seed, n=n, stream=True, **options):
                for choice in chunk.choices:
                    texts[choice.index] += choice.text
            return texts
        return (await ask(client, prompt, seed=seed, n=n, **options)).choices

    async def many(server, requests):
        async with client_of(server, openai.AsyncOpenAI) as client:
            return await asyncio.gather(*(one(client, *request) for request in requests))

    with Server() as server:
        requests = [request() for _ in range(64)]
        for _ in range(2):
            for (prompt, seed, n, options), got in zip(requests, asyncio.run(many(server, requests))):
                for choice, (ids, logprobs, plain, text, _) in zip(got, direct(server.model, prompt, seed, n, **options)):
                    assert choice == text if isinstance(choice, str) else of_choice(choice) == (ids, logprobs if options.get("temperature", 1) else plain, text)


class Gated:
    """A model whose calls of generate wait at the third token of their first sequence."""

    def __init__(self, model):
        self.model, self.begun, self.gate = model, threading.Event(), threading.Event()

    def __getattr__(self, name):
        return getattr(self.model, name)

    def generate(self, *prompts, on_token, **options):
        def gated(b, index, *rest):
            if (b, index) == (0, 2):
                self.begun.set()
                assert self.gate.wait(60)
            return on_token(b, index, *rest)

        return self.model.generate(*prompts, on_token=gated, **options)


def test_requests_join_a_batch():
    """A request is answered while the one batch runs in which an earlier request has not ended."""
    with tempfile.TemporaryDirectory() as folder:
        write_model(pathlib.Path(folder))
        model, limits = Gated(napier.CausalLM(folder)), Limits(512, parallel=1)
        engine, order = Engine(model, limits), []

        def submit(i, max_tokens, **more):
            body = {"prompt": PROMPTS[i % 5], "seed": i, "max_tokens": max_tokens, "ignore_eos": True, **more}
            request = protocol.prepare(json.dumps(body).encode(), False, (model, NAME), limits)
            job = Job(request, lambda: order.append(i) if job.finished else None)
            engine.submit(job)
            return job

        engine.start()
        try:
            jobs = [submit(0, 60)]
            assert model.begun.wait(60)
            jobs += [submit(i, 32 + i) for i in range(1, 5)]  # these join
            assert engine.counts() == {"waiting": 0, "running": 5}
            jobs += [submit(5, 20, temperature=0.5), submit(6, 33)]  # other options wait, and so does what comes behind them
            assert engine.counts() == {"waiting": 2, "running": 5}
            model.gate.set()
            wait_for(lambda: len(order) == 7)
        finally:
            engine.stop()
        assert order == [1, 2, 3, 4, 0, 5, 6] and not any(job.error for job in jobs)
        for i, job in enumerate(jobs):
            wanted = direct(model.model, PROMPTS[i % 5], i, max_tokens=len(job.sequences[0].ids), temperature=0.5 if i == 5 else 1.0, stop=[])
            assert (job.sequences[0].ids, job.sequences[0].logprobs, "".join(job.sequences[0].pieces)) == (*wanted[0][:2], wanted[0][3])


def test_clients_that_leave():
    """Their sequences end, and others get their answers. SIGTERM in the middle of streams ends the server with status 0."""
    async def leave(server, stream, seconds):
        body = {"prompt": "x", "max_tokens": 500, "n": 4, "stream": stream, "ignore_eos": True}
        async with httpx.AsyncClient() as client:
            try:
                async with client.stream("POST", server.address + "/v1/completions", json=body, timeout=seconds) as response:
                    async for _ in response.aiter_raw():
                        break
            except httpx.TimeoutException:
                pass

    async def many(server):
        await asyncio.gather(*(leave(server, i % 2 == 0, 0.02 * (i % 5 + 1)) for i in range(40)))

    with Server("--grace", "1") as server:
        asyncio.run(many(server))
        wait_for(lambda: httpx.get(server.address + "/health").json() == {"status": "ok", "waiting": 0, "running": 0, "weights": 0})
        answer = ask(client_of(server), PROMPTS[0], max_tokens=20)
        assert of_choice(answer.choices[0]) == tuple(direct(server.model, PROMPTS[0], 0, max_tokens=20)[0][k] for k in (0, 1, 3))
        streams = [client_of(server).completions.create(model=NAME, prompt="x", max_tokens=500, n=64, stream=True, extra_body={"ignore_eos": True})
                   for _ in range(4)]
        for stream in streams:
            next(iter(stream))
        assert server.end() == 0


def test_weights():
    """New weights come between batches; an answer says which it is of."""
    from serving import write_model
    with Server("--weights", "/") as server, Server() as without:
        client, address = client_of(server), server.address + "/v1/weights"
        write_model(server.folder / "step-1", seed=1)
        (server.folder / "step-1" / "tokenizer.json").unlink()
        new = napier.CausalLM(server.folder / "step-1")
        inside = str(server.folder)[1:]

        def answers(model, version):
            got = ask(client, [5, 6, 7], max_tokens=30)
            wanted = direct(model, [5, 6, 7], 0, max_tokens=30, stop=server.model.info["eos_ids"]) if model is server.model else None
            if wanted is None:
                made = model.generate([[5, 6, 7]], max_tokens=30)
                assert got.choices[0].token_ids == made.token_ids.tolist() and got.choices[0].logprobs.token_logprobs == made.logprobs.tolist()
            else:
                assert of_choice(got.choices[0]) == tuple(wanted[0][k] for k in (0, 1, 3))
            assert got.system_fingerprint == f"weights-{version}"

        answers(server.model, 0)
        assert httpx.post(address, json={"path": inside + "/step-1"}, timeout=30).json() == {"weights": 1}
        answers(new, 1)
        assert httpx.post(address, json={"path": f"{inside}/{NAME}/model.safetensors"}, timeout=30).json() == {"weights": 2}
        answers(server.model, 2)
        (server.folder / "bad").mkdir()
        (server.folder / "bad" / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
        for path, status in ((inside + "/bad", 400), (inside + "/none", 404), ("../x", 404), ("etc", 400), ("\0", 400), ("", 400), (5, 400), (None, 400)):
            refused = httpx.post(address, json={"path": path}, timeout=30)
            assert refused.status_code == status and refused.json()["error"]["param"] == "path", refused.text
        answers(server.model, 2)
        assert httpx.post(without.address + "/v1/weights", json={"path": "x"}).status_code == 403


def test_weights_while_others_generate():
    from serving import write_model

    async def run(server):
        async with client_of(server, openai.AsyncOpenAI) as client, httpx.AsyncClient(timeout=60) as plain:
            async def change():
                for i in range(6):
                    await plain.post(server.address + "/v1/weights", json={"path": "step-1" if i % 2 == 0 else NAME})

            async def later(i):
                await asyncio.sleep(0.03 * i)
                return await ask(client, [5, i + 1], max_tokens=40)

            return (await asyncio.gather(change(), *(later(i) for i in range(40))))[1:]

    with Server() as outer:  # only for its folder
        write_model(outer.folder / "step-1", seed=1)
        with Server("--weights", outer.folder) as server:
            models = [outer.model, napier.CausalLM(outer.folder / "step-1")]
            seen = set()
            for i, answer in enumerate(asyncio.run(run(server))):
                version = int(answer.system_fingerprint.removeprefix("weights-"))
                seen.add(version)
                made = models[version % 2].generate([[5, i + 1]], max_tokens=40)
                assert answer.choices[0].token_ids == made.token_ids.tolist()
                assert np.array_equal(np.float32(answer.choices[0].logprobs.token_logprobs), made.logprobs)
    return f"{len(seen)} versions of the weights seen"
