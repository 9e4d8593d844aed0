"""`python -m napier audit`: exit status 0 in agreement, 1 where a cause was found, 2 for bad input."""

import argparse
import sys
import time

from .._lm.causal_lm import CausalLM
from .records import BadInput
from .run import EXPECTS, audit


def parser():
    p = argparse.ArgumentParser(
        prog="napier audit",
        description="Why do the log-probabilities of a sampler and of a trainer differ? Compares each engine's numbers with those that "
        "Napier computes, names the causes, and says how to mend them. Exit status: 0 agreement, 1 a cause was found, 2 bad input.",
        epilog="example: napier audit rollouts.jsonl --model Qwen3-0.6B --sample 500 --html report.html",
    )
    p.add_argument("file", help="JSON Lines: a prompt, a response and log-probabilities a line; - for stdin")
    p.add_argument("--model", required=True, metavar="DIR", help="config.json, model.safetensors, tokenizer.json")
    p.add_argument("--adapter", metavar="DIR", help="a LoRA adapter of peft, merged into the model")
    p.add_argument("--expect", choices=list(EXPECTS), default="temperature", help="what the numbers should be (default: %(default)s)")
    p.add_argument("--other", action="append", default=[], metavar="DIR", help="another checkpoint or adapter to try; may be repeated")
    p.add_argument("--sample", type=int, metavar="N", help="look at N lines, chosen at random")
    p.add_argument("--resume", metavar="FILE", help="keep scores in FILE, and go on from there")
    p.add_argument("--eps", type=float, default=0.2, help="clip range (default: %(default)s)")
    p.add_argument("--json", action="store_true", help="print JSON in place of words")
    p.add_argument("--html", metavar="FILE", help="write the report as one page, too")
    p.add_argument("--quiet", action="store_true", help="no bar on stderr")
    return p


class _Bar:
    def __init__(self, on):
        self._on, self._start = on, time.monotonic()

    def __call__(self, share):
        if self._on:
            spent = time.monotonic() - self._start
            left = f" {spent / share - spent:.0f} s left" if share > 0 else ""
            sys.stderr.write(f"\raudit: {100 * share:3.0f} % |{'#' * int(30 * share):30}|{left}   ")
            sys.stderr.flush()

    def close(self):
        if self._on:
            sys.stderr.write("\r" + " " * 70 + "\r")


def main(arguments=None):
    o = parser().parse_args(arguments)
    bar = _Bar(sys.stderr.isatty() and not o.quiet)
    source = sys.stdin if o.file == "-" else o.file
    try:
        model = CausalLM(o.model, adapter=o.adapter)
        report = audit(source, model, expect=o.expect, others=o.other, sample=o.sample, resume=o.resume, eps=o.eps, progress=bar)
        bar.close()
        sys.stdout.write(report.json() + "\n" if o.json else report.text())
        if o.html:
            report.html(o.html)
    except (BadInput, ValueError, OSError) as error:
        bar.close()
        sys.stderr.write(f"napier audit: {o.file}: {error}\n" if isinstance(error, BadInput) else f"napier audit: {error}\n")
        return 2
    return 0 if report.ok else 1
