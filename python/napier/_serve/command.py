"""The command line: python -m napier serve --model X."""

import argparse
import os
import signal
import socket
import sys
import threading

from .limits import CONNECTIONS, READ_SECONDS, Limits


def _arguments(argv):
    parser = argparse.ArgumentParser(
        prog="napier serve",
        description="Serves a model with OpenAI's HTTP interface (docs/serve.md).",
        epilog="example: napier serve --model Qwen3-0.6B --compute bfloat16 --port 8000",
    )
    add = parser.add_argument
    add("--model", required=True, metavar="PATH", help="a model's folder, or what else CausalLM.from_pretrained takes")
    add("--name", help="the model's name in requests; default: the last part of the path")
    add("--compute", default="float32", choices=("float32", "bfloat16", "split"))
    add("--memory", type=int, default=0, metavar="BYTES", help="that a call may use besides the weights; default 1 GiB")
    add("--host", default="127.0.0.1", help="default 127.0.0.1: this machine only")
    add("--port", type=int, default=8000, help="0: any that is free; the first line of the output names it")
    add("--api-key-file", metavar="FILE", help="its first line is the key that clients give; or the variable NAPIER_API_KEY")
    add("--weights", metavar="FOLDER", help="allow POST /v1/weights, with checkpoints that lie in this folder")
    add("--max-model-len", type=int, default=0, metavar="N", help="tokens of a prompt and its answer; default: the model's")
    add("--max-body", type=int, default=Limits._field_defaults["body"], metavar="BYTES", help="of a request; default 8 MiB")
    add("--max-queue", type=int, default=Limits._field_defaults["queue"], metavar="N", help="requests that wait; default 256")
    add("--timeout", type=float, default=Limits._field_defaults["seconds"], metavar="S", help="seconds of an answer; default 600")
    add("--parallel", type=int, default=Limits._field_defaults["parallel"], metavar="N", help="batches at once; default 2")
    conversations = Limits._field_defaults["conversations"]
    add("--conversations", type=int, default=conversations, metavar="N", help="chats whose keys and values are kept; default 4")
    add("--grace", type=int, default=30, metavar="S", help="seconds that answers have after SIGTERM; default 30")
    return parser.parse_args(argv)


def _key(path):
    if path is None:
        return os.environ.get("NAPIER_API_KEY") or None
    with open(path, encoding="utf-8") as file:
        key = file.readline().strip()
    if not key:
        sys.exit(f"napier serve: {path}: its first line is empty")
    return key


def _listen(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=CONNECTIONS)
    except OSError as error:
        sys.exit(f"napier serve: {host} port {port}: {error.strerror or error}")


def main(argv=None):
    """Serves until SIGTERM or Ctrl-C; the exit status is 0 then."""
    given = _arguments(argv)
    try:
        import uvicorn

        from .app import make
    except ImportError as error:
        sys.exit(f"napier serve: {error}. Its packages come with: pip install 'napier-math[serve]'")
    from .. import CausalLM

    key = _key(given.api_key_file)
    listener = _listen(given.host, given.port)
    try:
        model = CausalLM.from_pretrained(given.model, compute=given.compute, memory=given.memory)
    except (ValueError, OSError, MemoryError, NotImplementedError) as error:
        sys.exit(f"napier serve: {error}")
    context = given.max_model_len or model.info["positions"] or 4096
    limits = Limits(context, given.max_body, given.max_queue, given.timeout, given.parallel, given.conversations)
    address = listener.getsockname()
    only_local = address[0].startswith("127.") or address[0] == "::1"
    name = given.name or os.path.basename(os.path.normpath(given.model))
    app = make(model, name, limits, key=key, weights_folder=given.weights, only_local=only_local)
    if not only_local and not key:
        print("napier serve: other machines can use this server without a key (--api-key-file)", file=sys.stderr)
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    print(f"napier serve: {name} at http://{host}:{address[1]}", flush=True)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=int(READ_SECONDS),
        timeout_graceful_shutdown=given.grace + 5,
        server_header=False,
        ws="none",
        proxy_headers=False,  # X-Forwarded-For must not make a client local
        lifespan="on",
    )
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises the signal once more when it has ended
        signal.signal(number, lambda *_: None)

    class Server(uvicorn.Server):
        def handle_exit(self, sig, frame):
            timer = threading.Timer(given.grace, app.state.engine.stop)  # answers that last longer end with an error
            timer.daemon = True
            timer.start()
            super().handle_exit(sig, frame)

    Server(config).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
