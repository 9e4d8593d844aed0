"""A server of a small random model, in a process of its own, and what a direct call gives."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import napier
from support import ROOT

sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import docstrings  # noqa: E402

NAME = "Qwen3-0.6B"
CONFIG = {**docstrings.CONFIG, "max_position_embeddings": 512}


def write_model(folder, seed=0, template=True):
    docstrings.write_model(folder, CONFIG, docstrings.weights(docstrings.shapes(), seed=seed))
    if template:
        (folder / "chat_template.jinja").write_text(docstrings.TEMPLATE)


class Server:
    """`with Server() as server:` serves a model in server.folder / NAME; it must end with exit status 0."""

    def __init__(self, *options, **environment):
        self.options, self.environment = options, environment

    def __enter__(self):
        self.place = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.place.name)
        write_model(self.folder / NAME)
        self.model = napier.CausalLM(self.folder / NAME)
        self.errors = open(self.folder / "errors", "w+", encoding="utf-8")
        command = [sys.executable, "-m", "napier", "serve", "--model", self.folder / NAME, "--port", "0", *self.options]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        env={**os.environ, **self.environment})
        line = self.process.stdout.readline()
        assert " at http://" in line, line + self.said()
        self.address = line.split(" at ")[1].strip()
        self.port = int(self.address.rsplit(":", 1)[1])
        return self

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def end(self, seconds=30):
        """The exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def memory(self):
        """Bytes of the process that are in memory."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def __exit__(self, kind, *_):
        try:
            status = self.process.poll()
            assert (self.end() if status is None else status) == 0, self.said()
            assert kind is not None or "Traceback" not in self.said(), self.said()
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.errors.close()
            self.place.cleanup()


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


def direct(model, prompt, seed, n=1, **options):
    """The choices of a request with this seed, by a call that has nothing else in it: (ids, logprobs, plain, text, stop)."""
    made = model.generate([prompt], samples=n, numbers=seed + np.arange(n), texts=True, **options)
    ends = list(zip(made.offsets, made.offsets[1:]))
    return [(made.token_ids[a:b].tolist(), made.logprobs[a:b].tolist(), made.plain_logprobs[a:b].tolist(), text, stop)
            for (a, b), text, stop in zip(ends, made.texts, made.stop)]
