"""Ctrl-C ends long calls with KeyboardInterrupt, and later calls give their bits. bench/python/interrupts.py prints how
soon, for more calls."""

import math
import os
import signal
import threading
import time

import numpy as np
import pytest

import napier
from conftest import bits
from napier import rl

VOCABULARY = 151936
RNG = np.random.default_rng(3)


def random(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def many(rows):
    """A long array without its memory."""
    return np.broadcast_to(random(VOCABULARY), (rows, VOCABULARY))


def matmul():
    a = random(512, 1 << 14)
    return lambda n: napier.matmul(np.broadcast_to(a[:1], (n * 512, 1 << 14)), a.T)


def softmax():
    x = np.zeros(VOCABULARY)
    return lambda n: napier.softmax(np.broadcast_to(x, (n * 3, VOCABULARY)))


def token_logprobs():
    x, ids = many(1 << 17), np.arange(1 << 17)
    return lambda n: napier.token_logprobs(x[: n * 500], ids[: n * 500], entropy=True).logprobs


def kl_full():
    x = many(1 << 16)
    return lambda n: napier.kl_full(x[: n * 200], x[: n * 200])


def sample():
    x = many(1 << 16)
    return lambda n: napier.sample(x[: n * 100], top_p=0.9).ids


def linear_token_logprobs():
    states, head = random(1, 256), random(50000, 256)
    return lambda n: napier.linear_token_logprobs(np.broadcast_to(states, (n * 100, 256)), head, np.arange(n * 100)).logprobs


def linear_token_logprobs_backward():
    states, head = random(1, 256), random(50000, 256)
    return lambda n: rl.linear_token_logprobs_backward(
        np.broadcast_to(states, (n * 50, 256)), head, np.arange(n * 50), grad_logprobs=np.ones((n * 50, 1), np.float32)
    )[0]


def attention():
    k, q = random(1, 1, 4096, 64), random(1, 1, 1, 64)
    return lambda n: napier.attention(np.broadcast_to(q, (1, 1, n * 1000, 64)), k, k)


def attention_backward():
    k = random(1, 1, 2048, 64)

    def call(n):
        q = np.broadcast_to(k[:, :, :1], (1, 1, n * 500, 64))
        return napier.attention_backward(q, q, k, k, q, np.zeros((1, 1, n * 500), np.float32))[0]

    return call


CALLS = [
    matmul,
    softmax,
    token_logprobs,
    kl_full,
    sample,
    linear_token_logprobs,
    linear_token_logprobs_backward,
    attention,
    attention_backward,
]


def seconds(call, size):
    """Measures time of the processor, which a busy machine does not change."""
    start = time.process_time()
    call(size)
    return time.process_time() - start


def check_ctrl_c(call):
    """A signal comes early in a call of some seconds, which must end before half of them."""
    size = math.ceil(3 / min(seconds(call, 1) for _ in range(3)))
    sent = []

    def send():
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.1, send)
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            call(size)
    finally:
        ended = time.process_time()
        timer.cancel()
        timer.join()
    assert ended - sent[0] < 1.5


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("make", CALLS, ids=[make.__name__ for make in CALLS])
def test_ctrl_c_ends_the_call(make, threads):
    call = make()
    napier.set_num_threads(threads)
    try:
        before = bits(call(1))
        check_ctrl_c(call)
        assert bits(call(1)) == before
    finally:
        napier.set_num_threads(0)


def test_another_exception_of_a_handler():
    """The call raises what a handler raises, and goes on where it returns."""
    call, seen = matmul(), []

    def handle(number, frame):
        seen.append(napier.softmax(np.zeros(4, np.float32)))  # a handler may use the library
        if len(seen) == 2:
            raise ValueError("enough")

    before = signal.signal(signal.SIGINT, handle)
    timers = [threading.Timer(after, os.kill, [os.getpid(), signal.SIGINT]) for after in (0.05, 0.4)]
    try:
        for timer in timers:
            timer.start()
        with pytest.raises(ValueError, match="enough"):
            for _ in range(1000):
                call(4)
    finally:
        for timer in timers:
            timer.join()
        signal.signal(signal.SIGINT, before)
    assert len(seen) == 2


def test_only_the_main_thread_is_interrupted():
    call, results = matmul(), []
    worker = threading.Thread(target=lambda: results.append(call(4)))
    with pytest.raises(KeyboardInterrupt):
        worker.start()
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            time.sleep(0.01)
    worker.join()
    assert results and bits(results[0]) == bits(call(4))


def test_torch():
    torch = pytest.importorskip("torch")
    import napier.torch as nt

    a = torch.from_numpy(random(512, 2048))
    row = torch.from_numpy(random(1, 50000))
    check_ctrl_c(lambda n: nt.logsumexp(row.expand(n * 50, -1), -1))
    wide = a[:1].clone().requires_grad_()
    check_ctrl_c(lambda n: nt.matmul(wide.expand(n * 512, -1), a.T).sum().backward())
    states, head = torch.from_numpy(random(1, 256)).requires_grad_(), torch.from_numpy(random(10000, 256))
    check_ctrl_c(lambda n: nt.linear_token_logprobs(states.expand(n * 50, -1), head, torch.arange(n * 50)).logprobs.sum().backward())
