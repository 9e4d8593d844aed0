"""The server beside the direct call: tokens a second of 1, 8 and 64 clients, and its memory over many requests.

    python bench/python/serve.py MODEL [--clients 1 8 64] [--requests 1000]     in an environment with napier, starlette, uvicorn and httpx

A client sends a prompt of 16 ids and waits for its answer. The direct call has as many prompts as there are clients.
Both take turns; the middle of the rounds.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time

import httpx
import numpy as np

import napier

PROMPT = 16


def prompts_of(count):
    return np.random.default_rng(count).integers(200, size=(count, PROMPT)).tolist()


async def ask(address, prompts, times, tokens):
    async with httpx.AsyncClient(base_url=address, timeout=600, limits=httpx.Limits(max_connections=None)) as client:

        async def one(prompt):
            for _ in range(times):
                body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "logprobs": 0, "return_token_ids": True}
                (await client.post("/v1/completions", json=body)).raise_for_status()

        begin = time.perf_counter()
        await asyncio.gather(*map(one, prompts))
        return time.perf_counter() - begin


def direct(model, prompts, tokens):
    begin = time.perf_counter()
    model.generate(prompts, max_tokens=tokens, stop=[])
    return time.perf_counter() - begin


def memory(process):
    """MB of the process that are in memory."""
    with open(f"/proc/{process.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1000)
    given = parser.parse_args()
    command = [sys.executable, "-m", "napier", "serve", "--model", given.model, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().split(" at ")[1].strip()
        model = napier.CausalLM.from_pretrained(given.model)
        for count in given.clients:
            prompts = prompts_of(count)
            times = [
                (asyncio.run(ask(address, prompts, 1, given.tokens)), direct(model, prompts, given.tokens)) for _ in range(given.rounds)
            ]
            server, call = (count * given.tokens / statistics.median(column) for column in zip(*times))
            print(f"{count} clients: {server:.0f} tokens/s, the direct call {call:.0f}: {server / call:.2f} of it", flush=True)
        for done in range(0, given.requests + 1, 250) if given.requests else ():
            print(f"{done} requests more: {memory(process):.1f} MB", flush=True)
            asyncio.run(ask(address, prompts_of(10), 25, 4))
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
