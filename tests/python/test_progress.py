"""napier.progress: bars of long calls, which are removed however a call ends, and change no bit."""

import contextlib
import functools
import io
import os
import signal
import sys
import threading
import time
import zlib

import numpy as np
import pytest

import napier
from conftest import bits
from napier import _napier, _progress

RNG = np.random.default_rng(5)


def random(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


A, HEAD, Q = random(2048, 2048), random(50000, 128), random(1, 8, 4096, 64)
CALLS = {
    "matmul": lambda: napier.matmul(A, A),
    "linear_token_logprobs": lambda: napier.linear_token_logprobs(HEAD[:1000], HEAD, np.arange(1000)).logprobs,
    "attention": lambda: napier.attention(Q, Q, Q),
    "softmax": lambda: napier.softmax(np.broadcast_to(np.ravel(HEAD)[:100000], (200, 100000))),
}


def result_of(call):
    """A checksum: the results are large."""
    return zlib.crc32(bits(call()))


@functools.cache
def wanted(name):
    return result_of(CALLS[name])


@pytest.fixture(autouse=True)
def no_bars():
    """Before and after. With one thread a call asks for sure; of more, one that does not ask may do all of a short call."""
    napier.set_num_threads(1)
    yield
    _napier._set_progress(None)


@pytest.fixture(params=["tqdm", "without tqdm"])
def drawer(request, monkeypatch):
    if request.param == "tqdm":
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setattr(_progress, "_drawer", lambda: _progress._Line)


def wait():
    """A context asks ten times a second, so after this the next call asks at its first chance."""
    time.sleep(0.15)


class Recorded:
    """Notes what a bar would show, and fails if it goes back or is not closed."""

    def __init__(self):
        self.seen, self.bars, self.open = [], 0, False

    def __call__(self):
        assert not self.open
        self.bars, self.open = self.bars + 1, True
        return self

    def show(self, stage, share):
        self.seen.append((stage, share))

    def close(self):
        assert self.open
        self.open = False


@contextlib.contextmanager
def recorded():
    record = Recorded()
    _napier._set_progress(record)
    wait()
    yield record
    _napier._set_progress(None)
    assert not record.open


def check_growth(seen):
    """Takes the bars of one call, whose first step may come again."""
    before = ("", 0.0)
    for stage, share in seen:
        assert stage.startswith("step ") and 0 <= share <= 1
        assert share >= before[1] or stage != before[0] or stage == "step 1"
        before = stage, share


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CALLS)
def test_shares_grow(name, threads):
    napier.set_num_threads(threads)
    want = wanted(name)
    with recorded() as record:
        calls = 0
        while calls < 3 or not record.bars and calls < 100:
            calls += 1
            first = len(record.seen)
            assert result_of(CALLS[name]) == want
            assert not record.open
            check_growth(record.seen[first:])
            wait()
    assert 1 <= record.bars <= 3


@pytest.mark.parametrize("name", CALLS)
def test_bar(name, drawer):
    file, want = io.StringIO(), wanted(name)
    with napier.progress(delay=0, file=file):
        wait()
        assert result_of(CALLS[name]) == want
    assert "napier: step " in file.getvalue() and "|" in file.getvalue()
    assert not file.getvalue().split("\r")[-2].strip() and not file.getvalue().split("\r")[-1].strip()


def drawn(monkeypatch, terminal, **options):
    """What a call draws on stderr, which is a terminal or not."""
    file = io.StringIO()
    file.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", file)
    with napier.progress(**options):
        wait()
        CALLS["matmul"]()
    return file.getvalue()


def test_only_on_a_terminal(monkeypatch):
    assert not drawn(monkeypatch, False, delay=0)
    assert "step" in drawn(monkeypatch, True, delay=0)
    assert not drawn(monkeypatch, True, delay=1000)
    assert not drawn(monkeypatch, True, delay=0, show=False)


def test_on_and_off():
    file = io.StringIO()
    napier.progress(delay=0, file=file)
    with napier.progress(False):
        wait()
        CALLS["matmul"]()
        assert not file.getvalue()
    wait()
    CALLS["matmul"]()
    assert file.getvalue()
    napier.progress(False)
    length = len(file.getvalue())
    wait()
    CALLS["matmul"]()
    assert len(file.getvalue()) == length


class Broken(io.StringIO):
    """A file that raises, or does something else, when a bar is written."""

    def __init__(self, action):
        super().__init__()
        self.action = action

    def write(self, text):
        self.action()
        return super().write(text)


def test_errors_of_a_bar_are_its_own(drawer):
    def fail():
        raise ZeroDivisionError

    with napier.progress(delay=0, file=Broken(fail)):
        wait()
        assert result_of(CALLS["matmul"]) == wanted("matmul")


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_while_a_bar_is_drawn(drawer):
    for kind in (KeyboardInterrupt, ValueError):

        def handle(number, frame, kind=kind):
            raise kind("enough")

        before = signal.signal(signal.SIGINT, handle)
        try:
            with napier.progress(delay=0, file=Broken(interrupt)):
                wait()
                with pytest.raises(kind, match="enough"):
                    CALLS["matmul"]()
        finally:
            signal.signal(signal.SIGINT, before)
    assert result_of(CALLS["matmul"]) == wanted("matmul")


def test_ctrl_c_removes_the_bar():
    a = random(512, 1 << 13)
    with recorded() as record:
        timer = threading.Timer(0.3, interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            while True:
                napier.matmul(np.broadcast_to(a[:1], (1 << 13, 1 << 13)), a.T)
        timer.join()
        assert not record.open
    assert record.seen


def test_an_error_leaves_no_bar():
    with recorded() as record:
        with pytest.raises(ValueError):
            napier.matmul(A, A[:5])
        assert not record.open


def test_threads():
    """One call at a time has a bar; all give their bits."""
    file, results = io.StringIO(), []

    def work():
        for name, call in CALLS.items():
            wait()
            results.append(result_of(call) == wanted(name))

    with napier.progress(delay=0, file=file):
        workers = [threading.Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert results == [True] * 12 and "step" in file.getvalue()


def test_umap_is_not_shown_twice():
    x = random(500, 5)
    with recorded() as record:
        napier.UMAP(n_epochs=20, random_state=1).fit(x)
        assert record.seen and not any(stage.startswith("step") for stage, _ in record.seen)
        del record.seen[:]
        napier.umap.nearest_neighbors(x, 5, progress=lambda stage, done: False)
        assert not record.seen
