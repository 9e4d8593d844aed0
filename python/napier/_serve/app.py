"""The server's addresses (docs/serve.md), as an application of Starlette."""

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import json
import secrets
import threading
import traceback

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.routing import Route

from . import limits as lim
from . import protocol, weights
from .answers import Writer
from .batching import Engine, Job
from .protocol import Refused


def _is_local(host):
    """Whether a name or an address is that of this machine for itself."""
    if host in ("localhost", None):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _refusal(refused):
    headers = {429: {"Retry-After": "1"}, 401: {"WWW-Authenticate": "Bearer"}}.get(refused.status, {})
    return JSONResponse(refused.body(), refused.status, headers)


class _Gate:
    """Looks at a request's head before anything is read: the host that it names, its key, and the type of its body."""

    def __init__(self, app, key, only_local):
        self.app, self.only_local = app, only_local
        self.key = key and hashlib.sha256(key.encode()).digest()

    def _check(self, scope):
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "localhost").rsplit(":", 1)[0] if not headers.get(b"host", "").endswith("]") else headers[b"host"]
        if self.only_local and not _is_local(host):  # a page whose name a DNS server has moved to 127.0.0.1
            raise Refused(f"Host: {host} is not this machine", "Host", 403)
        given = headers.get(b"authorization", "").removeprefix("Bearer ").encode("latin-1")
        if self.key and scope["path"] != "/health" and not hmac.compare_digest(hashlib.sha256(given).digest(), self.key):
            raise Refused("Authorization: expected the header 'Bearer KEY' with this server's key", "Authorization", 401, "invalid_api_key")
        kind = headers.get(b"content-type", "").split(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json":  # a page of another origin can send any other type
            raise Refused("Content-Type: expected application/json", "Content-Type", 415)

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            try:
                self._check(scope)
            except Refused as refused:
                return await _refusal(refused)(scope, receive, send)
        await self.app(scope, receive, send)


class _Bodies:
    """Reads bodies, which share a limit of memory."""

    def __init__(self, most):
        self.most, self.held = most, 0

    async def read(self, request):
        parts, size = [], 0
        try:
            async with asyncio.timeout(lim.READ_SECONDS):
                async for part in request.stream():
                    size, self.held = size + len(part), self.held + len(part)
                    if size > self.most:
                        raise Refused(f"the body has more than {self.most} bytes", status=413, code="body_too_large")
                    if self.held > lim.READ_BYTES:
                        raise Refused("too many bodies at once: try again later", status=429, code="busy")
                    parts.append(part)
        except TimeoutError:
            raise Refused(f"the body did not arrive within {lim.READ_SECONDS:.0f} seconds", status=408, code="timeout") from None
        finally:
            self.held -= size
        return b"".join(parts)


def _waker(loop, event):
    """A function for any thread that sets an event of the loop's thread."""

    def wake():
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(event.set)

    return wake


def _error_of(job):
    if isinstance(job.error, Refused):
        return job.error
    traceback.print_exception(job.error)
    return Refused("the server failed; its log says more", status=500, code="internal_error")


class _Answer:
    """Runs a job, and sends its answer while the client is there."""

    def __init__(self, engine, request, name):
        self.engine, self.request, self.name = engine, request, name
        self.event = asyncio.Event()
        self.job = Job(request, _waker(asyncio.get_running_loop(), self.event))
        self.begun = False

    async def __call__(self, scope, receive, send):
        gone = asyncio.create_task(self._gone(receive))
        try:
            self.engine.submit(self.job)
            async with asyncio.timeout(self.engine.limits.seconds):
                await (self._stream(send, gone) if self.request.stream else self._whole(scope, receive, send, gone))
        except Refused as refused:
            await self._refuse(refused, scope, receive, send)
        except TimeoutError:
            seconds = f"{self.engine.limits.seconds:g}"
            await self._refuse(Refused(f"no answer within {seconds} seconds", status=504, code="timeout"), scope, receive, send)
        except OSError:  # the client has gone
            pass
        finally:
            self.engine.cancel(self.job)
            gone.cancel()

    async def _refuse(self, refused, scope, receive, send):
        if not self.begun:
            return await _refusal(refused)(scope, receive, send)
        async with asyncio.timeout(1):  # of a client that may not read
            await self._send(send, refused.body())
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    @staticmethod
    async def _gone(receive):
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _news(self, gone):
        """Waits for something new. False: the client has gone."""
        new = asyncio.ensure_future(self.event.wait())
        await asyncio.wait([new, gone], return_when=asyncio.FIRST_COMPLETED)
        new.cancel()
        self.event.clear()
        return not gone.done()

    def _writer(self):
        return Writer(self.job, self.engine.model, self.name, ("chatcmpl-" if self.request.chat else "cmpl-") + secrets.token_hex(12))

    async def _whole(self, scope, receive, send, gone):
        while not self.job.finished:
            if not await self._news(gone):
                return
        if self.job.error:
            raise _error_of(self.job)
        answer = await asyncio.to_thread(self._writer().answer)
        await JSONResponse(answer)(scope, receive, send)

    async def _send(self, send, chunk):
        text = chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False, separators=(",", ":"))
        await send({"type": "http.response.body", "body": f"data: {text}\n\n".encode(), "more_body": True})

    async def _stream(self, send, gone):
        writer, over = self._writer(), False
        while not over:
            if not await self._news(gone):
                return
            over = self.job.finished
            if over and self.job.error:
                raise _error_of(self.job)
            if not self.begun:
                await self._begin(send)
                for chunk in writer.begin():
                    await self._send(send, chunk)
            for chunk in writer.news():
                await self._send(send, chunk)
        for chunk in [*writer.end(), "[DONE]"]:
            await self._send(send, chunk)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self, send):
        self.begun = True
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})


class _Server:
    """What answers requests."""

    def __init__(self, model, name, limits, weights_folder):
        self.name, self.limits, self.folder = name, limits, weights_folder
        self.engine, self.bodies = Engine(model, limits), _Bodies(limits.body)
        self.loading = threading.Lock()

    def routes(self):
        async def completions(request):
            return await self._generate(request, False)

        async def chat(request):
            return await self._generate(request, True)

        posts = {
            "/v1/completions": completions,
            "/v1/chat/completions": chat,
            "/v1/weights": self._weights,
            "/tokenize": self._tokenize,
            "/detokenize": self._detokenize,
        }
        gets = {"/v1/models": self._models, "/health": self._health, "/server_info": self._info}
        return [
            *(Route(path, function, methods=["POST"]) for path, function in posts.items()),
            *(Route(path, function, methods=["GET"]) for path, function in gets.items()),
        ]

    @contextlib.asynccontextmanager
    async def lifespan(self, app):
        self.engine.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.engine.stop)

    async def _generate(self, request, chat):
        raw = await self.bodies.read(request)
        made = await asyncio.to_thread(protocol.prepare, raw, chat, (self.engine.model, self.name), self.limits)
        return _Answer(self.engine, made, self.name)

    async def _health(self, request):
        return JSONResponse({"status": "ok", **self.engine.counts(), "weights": self.engine.version})

    async def _models(self, request):
        one = {"id": self.name, "object": "model", "created": 0, "owned_by": "napier", "max_model_len": self.limits.context}
        return JSONResponse({"object": "list", "data": [one]})

    async def _info(self, request):
        """What clients of vLLM ask for."""
        config = {"dtype": f"torch.{self.engine.model.info['compute']}", "logprobs_mode": "processed_logprobs"}
        return JSONResponse({"vllm_config": {"model_config": {**config, "max_model_len": self.limits.context}}})

    async def _object(self, request, name, kind):
        """A member of a request's body, which has no other but the model."""
        try:
            given = json.loads(await self.bodies.read(request))
        except (ValueError, RecursionError) as error:
            raise Refused(f"the body is not JSON: {error}") from None
        if not isinstance(given, dict) or not isinstance(given.get(name), kind):
            raise Refused(f"{name}: expected a member of this name in an object, a {kind.__name__}", name)
        return given

    async def _tokenize(self, request):
        given = await self._object(request, "prompt", str)
        special = given.get("add_special_tokens", True)
        ids = await asyncio.to_thread(protocol.tokenize, self.engine.model, given["prompt"], special)
        return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": self.limits.context})

    async def _detokenize(self, request):
        given = await self._object(request, "tokens", list)
        return JSONResponse({"prompt": await asyncio.to_thread(protocol.detokenize, self.engine.model, given["tokens"])})

    async def _weights(self, request):
        if request.client is None or not _is_local(request.client.host):
            raise Refused("weights are changed from this machine only", status=403)
        if self.folder is None:
            raise Refused("weights cannot be changed: the server was started without --weights", status=403)
        given = await self._object(request, "path", str)
        with weights.one_at_a_time(self.loading):
            new = await asyncio.to_thread(weights.load, self.engine.model, self.folder, given["path"])
            return JSONResponse({"weights": self.engine.replace(new)})


async def _on_refused(request, refused):
    return _refusal(refused)


async def _on_http(request, error):
    return _refusal(Refused(f"{request.method} {request.url.path}: {error.detail}", status=error.status_code))


async def _on_gone(request, error):
    return _refusal(Refused("the client has gone", status=400))


async def _on_error(request, error):
    return _refusal(Refused("the server failed; its log says more", status=500, code="internal_error"))


def make(model, name, limits, *, key=None, weights_folder=None, only_local=True):
    """The application."""
    server = _Server(model, name, limits, weights_folder)
    handlers = {Refused: _on_refused, HTTPException: _on_http, ClientDisconnect: _on_gone, Exception: _on_error}
    app = Starlette(routes=server.routes(), exception_handlers=handlers, lifespan=server.lifespan)
    app.state.engine = server.engine
    app.add_middleware(_Gate, key=key, only_local=only_local)
    return app
