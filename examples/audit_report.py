"""Two engines that report log-probabilities of the same responses, one of them without the prompt's BOS, and `napier audit`, which
says which one and why. docs/audit.md reads this report line by line.

    python audit_report.py [--html report.html]
"""

import argparse
import json
import pathlib
import tempfile
from typing import Any

import numpy as np
from small_model import CONFIG, VOCABULARY, write_weights

import napier

BOS = 1


def rollouts(model: napier.CausalLM, trainer: napier.CausalLM) -> list[dict[str, Any]]:
    """Lines of the audit's input."""
    rng = np.random.default_rng(0)
    prompts = [[BOS, *rng.integers(5, VOCABULARY, 8).tolist()] for _ in range(40)]
    made = model.generate(prompts, max_tokens=50, stop=[])
    lines = []
    for prompt, ids in zip(prompts, made.token_ids.reshape(40, 50)):
        engines = {"sampler": model.logprobs_for(prompt[1:], ids), "trainer": trainer.logprobs_for(prompt, ids)}
        lines.append({"prompt_ids": prompt, "response_ids": ids.tolist(), "logprobs": {name: x.tolist() for name, x in engines.items()}})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--html", help="where the report goes as a page")
    html = parser.parse_args().html
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        write_weights(folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({**CONFIG, "bos_token_id": BOS}))
        model = napier.CausalLM(folder)
        report = napier.audit(rollouts(model, napier.CausalLM(folder, compute="bfloat16")), model)
    print(report.text(), end="")
    if html:
        report.html(html)


if __name__ == "__main__":
    main()
