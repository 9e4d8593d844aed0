#!/usr/bin/env python3
"""Samples of many prompts by Ray Data: any number of actors on any machines, and the same samples.

    python ray_generate.py Qwen3-0.6B prompts.jsonl samples.jsonl [--actors 2] [--samples 4] [--max-tokens 64]

A line of prompts.jsonl has a prompt: {"prompt": "2 + 2 ="}. The samples are those of `napier generate` on the same file, also
when an actor dies and another does its batches again. Needs ray[data], and a Napier built with its model. To run on a
cluster, start Ray there, and give --address auto.
"""

import argparse
import json
from typing import Any

import ray

import napier.ray


def samples_of(prompts: list[str], model: str, actors: int, batch_size: int = 16, cpus: float = 1, **options: Any) -> ray.data.Dataset:
    """A lazy dataset with a row for each sample. Prompts are numbered here, because batches come in any order."""
    data = ray.data.from_items([{"number": i, "prompt": prompt} for i, prompt in enumerate(prompts)])
    return data.map_batches(
        napier.ray.Generate,
        fn_constructor_kwargs={"model": model, **options},
        batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_cpus=cpus,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompts")
    parser.add_argument("output")
    parser.add_argument("--address", help="of a cluster; without it, Ray starts on this machine")
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=1.0)
    given = parser.parse_args()
    ray.init(address=given.address)
    with open(given.prompts, encoding="utf-8") as lines:
        prompts = [json.loads(line)["prompt"] for line in lines if line.strip()]
    rows = samples_of(
        prompts, given.model, given.actors, samples=given.samples, max_tokens=given.max_tokens, temperature=given.temperature
    ).take_all()
    with open(given.output, "w", encoding="utf-8") as file:
        for row in sorted(rows, key=lambda row: (row["number"], row["sample"])):
            made = {"text": row["text"]} if "text" in row else {"token_ids": [int(i) for i in row["token_ids"]]}  # no tokenizer
            print(json.dumps({"number": row["number"], "sample": row["sample"], **made}), file=file)
    print(f"{len(rows)} samples of {len(prompts)} prompts in {given.output}")


if __name__ == "__main__":
    main()
