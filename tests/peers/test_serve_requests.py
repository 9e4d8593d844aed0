"""napier serve and requests that are wrong, too large, too many or not allowed: each gets an error in OpenAI's shape."""
import asyncio
import json
import socket
import time

import httpx

from serving import NAME, Server, direct, wait_for
from support import Skip

WRONG = {  # of each parameter: values that are none of its type or range
    "model": (5, "another", ["x"], {}),
    "n": (0, -1, 1.5, "2", True, 10**9, [1]),
    "seed": ("x", 1.5, 2**63, -(2**63) - 1, True, [0]),
    "stop": (5, "", [""], ["x"] * 17, [5], {"a": 1}, "x" * 1025, [["x"]]),
    "stop_token_ids": (5, [-1], ["x"], [10**9], [True], [[1]], list(range(65))),
    "ignore_eos": (1, "true", []),
    "temperature": (-0.1, "1", [1], 1e9, True, 10**400),
    "top_p": (0, -1, 1.1, "x", False),
    "top_k": (-2, 1.5, "x", 2**40),
    "min_p": (-0.1, 1.5, "x", None.__class__.__name__),
    "repetition_penalty": (0, -1, "x", 1e10),
    "presence_penalty": (-2.1, 2.1, "x", [0]),
    "frequency_penalty": (-2.1, 3, "x", {}),
    "max_tokens": (-1, 0, 1.5, "x", 10**6, 10**30, True),
    "min_tokens": (-1, 17, "x", 1.5),
    "stream": (1, "x", []),
    "stream_options": (1, "x", [], True),
    "prompt_logprobs": (-1, 129, "x", True),
    "plain_logprobs": (1, "x"),
    "return_token_ids": (1, "x"),
    "return_tokens_as_token_ids": (1, "x"),
    "add_special_tokens": (1, "x"),
    "best_of": (2, "x", True),
    "suffix": ("x", 5),
    "logit_bias": ({"5": 100}, 1),
    "response_format": ({"type": "json_object"}, "json", {}),
    "use_beam_search": (True,),
    "skip_special_tokens": (False,),
    "include_stop_str_in_output": (True,),
    "detokenize": (False,),
    "length_penalty": (2,),
    "structured_outputs": ({"regex": "x"}, {}),
    "guided_json": ({}, "x"),
    "nonsense": (1, {}, "x"),
}
OF_COMPLETIONS = {
    "prompt": (5, [], [[]], [["x"]], {}, [5, "x"], ["x", 5], [-1], [10**6], [10**30], [1.5], [True], [None], "", [[5], []], "\ud800", ["x"] * 1025, [5] * 600),
    "logprobs": (-1, 129, "x", True, 1.5),
    "echo": (1, "x"),
}
OF_CHAT = {
    "messages": (5, [], "x", {}, [5], [{}], [{"role": "user"}], [{"role": 5, "content": "x"}], [{"role": "user", "content": 5}],
                 [{"role": "user", "content": ["x"]}], [{"role": "user", "content": [{"type": "image_url"}]}],
                 [{"role": "user", "content": [{"type": "text", "text": 5}]}], [{"role": "user", "content": "\udfff"}], [{"role": "user", "content": "x" * 9000}]),
    "logprobs": (1, "x", 5),
    "top_logprobs": (-1, 129, "x", 5),  # 5: logprobs is not true
    "max_completion_tokens": (0, -1, "x", 10**6),
    "tools": (5, "x", [5], {}),
    "tool_choice": ("required", {"type": "function"}),
    "documents": (5, ["x"]),
    "chat_template_kwargs": (5, {"messages": []}, {"tools": []}),
    "chat_template": ("{{ 1 }}",),
    "add_generation_prompt": (1, "x"),
    "continue_final_message": (5, "x"),
}
GOOD = {"/v1/completions": {"prompt": "Hello", "max_tokens": 2}, "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}}
PAIRS = [{"logprobs": 1, "top_p": 0.5}, {"logprobs": 2, "repetition_penalty": 1.5}, {"echo": True, "stream": True}, {"prompt": ["x", "y"], "n": 600},
         {"ignore_eos": True, "stop": "x"}, {"seed": 2**63 - 1}, {"stream": True, "stream_options": {"include_usage": 1}}, {"max_tokens": 511}]
BODIES = [b"", b"{", b"[]", b"null", b"5", b'"x"', b"\xff\xfe", b"{\"prompt\": \"\xff\"}", b'{"prompt": NaN}', b'{"prompt": Infinity}', b"[" * 100000,
          b'{"prompt": ' * 50000, b'{"prompt": ' + b"9" * 5000 + b"}", b'{"a":1}', b"\0", b'{"prompt": "x"} x', b"{'prompt': 'x'}", b'{"prompt": "\\ud8"}',
          b'{"\\ud800": 1}', b'{"stop": ' + b"[" * 900 + b"]" * 900 + b', "prompt": "x"}', b'{"temperature": 1e999, "prompt": "x"}']


def refused(answer, status=None):
    """The error of an answer, in OpenAI's shape."""
    told = f"{answer.request.url}: {answer.status_code}: {answer.text[:300]}"
    assert 400 <= answer.status_code < 500 and status in (None, answer.status_code), told
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"] and isinstance(error["type"], str), error
    assert error["param"] is None or isinstance(error["param"], str)
    return error


def test_malformed_requests():
    with Server() as server, httpx.Client(base_url=server.address, timeout=60) as client:
        count = 0
        for path, own in (("/v1/completions", OF_COMPLETIONS), ("/v1/chat/completions", OF_CHAT)):
            for name, values in {**WRONG, **own}.items():
                for value in values:
                    body = {**GOOD[path], name: value}
                    text = json.dumps(body).encode()
                    error = refused(client.post(path, content=text, headers={"Content-Type": "application/json"}))
                    assert (error["param"] or "").startswith(name) and name in error["message"], f"{name} = {value!r}: {error}"
                    count += 1
            for text in BODIES:
                refused(client.post(path, content=text, headers={"Content-Type": "application/json"}), 400)
                count += 1
        for more in PAIRS:
            error = refused(client.post("/v1/completions", json={**GOOD["/v1/completions"], **more}), 400)
            assert error["param"] in ("n", "max_tokens") or error["param"].split(".")[0] in more, error
            count += 1
        for path in ("/tokenize", "/detokenize"):
            for text in BODIES[:-2]:  # the last two have a prompt
                refused(client.post(path, content=text, headers={"Content-Type": "application/json"}))
                count += 1
        for tokens in (5, ["x"], [-1], [10**6], [1.5], "x", [[1]]):
            refused(client.post("/detokenize", json={"tokens": tokens}), 400)
            count += 1
        for method, path, status in (("GET", "/", 404), ("GET", "/v1/completions", 405), ("DELETE", "/v1/models", 405), ("GET", "/../etc/passwd", 404)):
            refused(client.request(method, path), status)
        ids = client.post("/tokenize", json={"prompt": "Hello, world"}).json()["tokens"]
        assert ids == server.model.encode("Hello, world")
        assert client.post("/detokenize", json={"tokens": ids}).json() == {"prompt": "Hello, world"}
        answer = client.post("/v1/completions", json={**GOOD["/v1/completions"], "seed": 0, "user": "x", "suffix": None}).json()
        assert answer["choices"][0]["text"] == direct(server.model, "Hello", 0, max_tokens=2)[0][3]
    assert count > 200
    return f"{count} requests"


def raw(server, text, seconds=10):
    """What the server says to these bytes, until it closes the connection or the time is over."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        said = b""
        try:
            connection.sendall(text)
            while part := connection.recv(1 << 16):
                said += part
                if b"\r\n\r\n" in said and b"error" in said:
                    break
        except OSError:
            pass
        return said


def test_bytes_that_are_no_request():
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with Server() as server:
        for text in (b"\0\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"x" * 100000 + b"\r\n\r\n", head + b"X: " + b"y" * 200000 + b"\r\n\r\n",
                     head + b"Content-Length: -5\r\n\r\n", head + b"Content-Length: x\r\n\r\n", head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
                     head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}"):
            said = raw(server, text)
            assert not said or b" 400 " in said.split(b"\r\n")[0] or b" 404 " in said.split(b"\r\n")[0] or b" 431 " in said, said[:200]
        for cut in range(0, 60, 7):  # a connection that ends in the middle of a body
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(head + b'Content-Length: 60\r\n\r\n{"prompt": "x", "max_tokens": 400, "stream": true, "n": 9}'[:cut + 22])
        assert httpx.get(server.address + "/health").json()["status"] == "ok"


def test_limits():
    async def many(server, count):
        body = {"prompt": "x", "max_tokens": 480, "n": 16, "ignore_eos": True}
        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
            # each of its own kind, so that no two run together
            return await asyncio.gather(*(client.post(server.address + "/v1/completions", json={**body, "temperature": 1 + i / 100}) for i in range(count)))

    with Server("--max-body", "4000", "--max-queue", "2", "--timeout", "1", "--parallel", "1", "--max-model-len", "500") as server:
        refused(httpx.post(server.address + "/v1/completions", json={"prompt": "x" * 5000}), 413)
        assert refused(httpx.post(server.address + "/v1/completions", json={"prompt": [5] * 501}), 400)["code"] == "context_length_exceeded"
        statuses = [answer.status_code for answer in asyncio.run(many(server, 12))]
        assert statuses.count(429) >= 6 and set(statuses) <= {200, 429, 504}, statuses
        wait_for(lambda: httpx.get(server.address + "/health").json()["running"] == 0)
        slow = httpx.post(server.address + "/v1/completions", json={"prompt": "x", "max_tokens": 480, "n": 1000, "ignore_eos": True}, timeout=60)
        assert slow.status_code == 504 and slow.json()["error"]["code"] == "timeout"
        wait_for(lambda: httpx.get(server.address + "/health").json()["running"] == 0)
        begin = time.monotonic()
        assert httpx.post(server.address + "/v1/completions", json={"prompt": "x", "max_tokens": 2}).status_code == 200
        assert time.monotonic() - begin < 1


def test_limits_that_are_large():
    """Made small, in this process; no thread generates."""
    from napier import CausalLM
    from napier._serve import app, limits

    async def slow(parts, seconds):
        for _ in range(parts):
            yield b" " * 100
            await asyncio.sleep(seconds)

    async def run(application):
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers={"Content-Type": "application/json"}) as client:
            def post(**content):
                return client.post("/v1/completions", **content)
            refused(await post(content=slow(9, 0.1)), 408)
            both = await asyncio.gather(post(content=slow(6, 0.01)), post(content=slow(6, 0.01)))
            assert 429 in [answer.status_code for answer in both]
            assert "tokens in one request" in refused(await post(json={"prompt": [[5] * 30, [5] * 30]}), 400)["message"]
            assert refused(await post(json={"prompt": [5] * 40, "prompt_logprobs": 2}), 400)["param"] == "prompt_logprobs"
            assert refused(await post(json={"prompt": [5], "logprobs": 2, "max_tokens": 60}), 400)["param"] == "logprobs"
            waiting = [asyncio.create_task(post(json={"prompt": [5] * 20})) for _ in range(3)]
            assert refused((await waiting[2]), 429)["code"] == "queue_full"
            assert [answer.status_code for answer in await asyncio.gather(*waiting[:2])] == [504, 504]

    small = {"READ_SECONDS": 0.5, "READ_BYTES": 1000, "REQUEST_TOKENS": 50, "LOGITS": 30 * 290 * 4, "QUEUE_TOKENS": 50}
    before = {name: getattr(limits, name) for name in small}
    with Server() as server:
        try:
            for name, value in small.items():
                setattr(limits, name, value)
            model = CausalLM(server.folder / NAME)
            asyncio.run(run(app.make(model, NAME, limits.Limits(512, seconds=2.0))))
        finally:
            for name, value in before.items():
                setattr(limits, name, value)
        held = []
        try:
            for _ in range(limits.CONNECTIONS + 20):
                held.append(socket.create_connection(("127.0.0.1", server.port), timeout=5))
            assert b" 503 " in raw(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").split(b"\r\n")[0]
        finally:
            for one in held:
                one.close()
        wait_for(lambda: httpx.get(server.address + "/health").status_code == 200)


def test_a_request_that_does_not_fit():
    """It gets an error by itself, whatever it shares a batch with."""
    sizes = (5, 400, 7, 6, 400, 9)

    async def all_at_once(server):
        async with httpx.AsyncClient(timeout=60) as client:
            return await asyncio.gather(*(client.post(server.address + "/v1/completions", json={"prompt": [5] * size, "max_tokens": 100, "seed": 0})
                                          for size in sizes))

    with Server("--memory", "2300000") as server:
        for size, answer in zip(sizes, asyncio.run(all_at_once(server))):
            if size == 400:
                assert refused(answer, 400)["param"] == "max_tokens" and "too few" in answer.text
            else:
                assert answer.json()["choices"][0]["text"] == direct(server.model, [5] * size, 0, max_tokens=100)[0][3]


def test_keys_hosts_and_types():
    with Server(NAPIER_API_KEY="s\u00e9cret") as server:
        url, body = server.address + "/v1/completions", GOOD["/v1/completions"]
        for key in ("", "Bearer", "Bearer x", "Bearer s\u00e9cre", "s\u00e9", "Basic x"):
            answer = httpx.post(url, json=body, headers={"Authorization": key.encode()})
            assert refused(answer, 401)["type"] == "authentication_error" and "Bearer" in answer.headers["www-authenticate"]
        assert httpx.post(url, json=body, headers={"Authorization": "Bearer s\u00e9cret".encode()}).status_code == 200
        assert httpx.get(server.address + "/health").status_code == 200
        refused(httpx.get(server.address + "/v1/models"), 401)
    with Server() as server:
        url = server.address + "/v1/completions"
        for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"):
            refused(httpx.post(url, content=json.dumps(GOOD["/v1/completions"]), headers={"Content-Type": kind}), 415)
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example"):
            refused(httpx.get(server.address + "/v1/models", headers={"Host": host}), 403)
        for host in ("localhost", "localhost:8000", "127.0.0.1", "[::1]:5", "[::1]"):
            assert httpx.get(server.address + "/v1/models", headers={"Host": host}).status_code == 200


def test_weights_from_another_machine():
    """The address is the peer's, whatever a header says."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            own = probe.getsockname()[0]
        except OSError:
            raise Skip("this machine has no address but its own") from None
    if own.startswith("127."):
        raise Skip("this machine has no address but its own")
    with Server("--host", "0.0.0.0", "--weights", "/tmp") as server:
        for headers in ({}, {"X-Forwarded-For": "127.0.0.1"}, {"Forwarded": "for=127.0.0.1"}):
            answer = httpx.post(f"http://{own}:{server.port}/v1/weights", json={"path": "x"}, headers=headers)
            assert "from this machine only" in refused(answer, 403)["message"]
        assert httpx.get(f"http://{own}:{server.port}/v1/models").json()["data"][0]["id"] == NAME
        assert "without a key" in server.said()
