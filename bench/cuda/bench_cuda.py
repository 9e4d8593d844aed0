"""napier.torch on a GPU, against PyTorch, torch.compile, two Triton kernels of softmax, Liger-Kernel, quack and RL-Kernel.

    make bench-cuda                                   or, in an environment with napier (built with CUDA) and torch:
    python bench/cuda/bench_cuda.py [--only REGEX] [--rounds N] [--output FILE]
    python bench/cuda/bench_cuda.py --list            the cases, without a GPU

Method. Contestants take turns, round by round, and each round begins with another one. A turn is timed by events of the
stream; a kernel that only waits goes first, so that the calls are in the queue before the clock starts, and the time is the
device's. Cold: 4 times the L2 cache is overwritten first and every call takes another input. Warm: the same input again and
again. Before timing, each result is compared with float64 on some rows, its memory having held NaN. The floor is the bytes that
must be moved over the copy rate measured in the same run, or the operations over the rate of a matrix product of bf16,
whichever takes longer. Medians; one JSON object a line in the output, and a table at the end.
"""
import argparse
import json
import os
import re
import statistics
import sys

from cases import all_cases, torch

TURN = 200.0  # microseconds: shorter calls are timed several at once
MOST_CALLS, MOST_BYTES = 32, 24 << 30


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name it is found in")
    parser.add_argument("--peers", default="", metavar="REGEX", help="contestants besides napier whose name it is found in")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--output", metavar="FILE", help="JSON Lines; added to")
    return parser.parse_args()


class Clock:
    """Times calls on the current stream."""

    def __init__(self):
        self.l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self.flush = torch.empty(4 * self.l2, dtype=torch.uint8, device="cuda")
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def turn(self, call, inputs, calls, cold):
        """Microseconds of one call."""
        if cold:
            self.flush.zero_()
        torch.cuda._sleep(4_000_000)  # cycles: about 2 ms, in which the calls are queued
        self.begin.record()
        for i in range(calls):
            call(*inputs[i % len(inputs)])
        self.end.record()
        self.end.synchronize()
        return 1e3 * self.begin.elapsed_time(self.end) / calls


def rates(clock):
    """Bytes a second of a copy, operations a second of a product of bf16."""
    a, b = (torch.empty(2 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    copy = min(clock.turn(b.copy_, [(a,)], 4, True) for _ in range(10))
    m = torch.randn(8192, 8192, device="cuda").bfloat16()
    product = min(clock.turn(torch.matmul, [(m, m)], 4, False) for _ in range(10))
    return 2 * a.numel() / copy * 1e6, 2 * 8192**3 / product * 1e6


def kinds(result):
    """Shapes and dtypes of a call's results."""
    tensors = result if isinstance(result, (tuple, list)) else (result,)
    return [(t.shape, t.dtype) for t in tensors if isinstance(t, torch.Tensor)]


def poison(results):
    """NaN in the memory that PyTorch will give to the next results, as these are gone."""
    for tensor in [torch.empty(shape, dtype=dtype, device="cuda") for shape, dtype in results]:
        tensor.fill_(float("nan") if tensor.dtype.is_floating_point else -1)


def contestants(case, inputs, wanted):
    """Name: call, for those that can take part and are right; and why the others do not."""
    able, out = {}, {}
    for name, make in case.peers.items():
        if name != "napier" and not re.search(wanted, name):
            continue
        try:
            call = make()
            poison(kinds(call(*inputs)))
            result = call(*inputs)
            torch.cuda.synchronize()
            share = case.check(inputs, result)
        except Exception as error:  # not installed, not for this shape, out of memory: the others go on
            text = str(error).strip().split("\n")[0][:100]
            out[name] = f"{type(error).__name__}: {text}"
            continue
        if share > 1.0:
            out[name] = f"wrong: {share:.1f} times the allowed error"
        else:
            able[name] = call
    return able, out


def make_inputs(case, l2):
    """So many inputs that they do not stay in the cache."""
    generator = torch.Generator("cuda").manual_seed(0)
    count = max(2, min(MOST_CALLS, -(-3 * l2 // max(case.input_bytes, 1)), MOST_BYTES // max(case.input_bytes, 1)))
    return [case.make(generator) for _ in range(count)]


def measure(clock, case, options):
    """Cold and warm: name to median microseconds; and why others are missing."""
    inputs = make_inputs(case, clock.l2)
    able, out = contestants(case, inputs[0], options.peers)
    calls = {name: max(1, min(MOST_CALLS, int(TURN / max(clock.turn(call, inputs[:1], 1, False), 1.0))))
             for name, call in able.items()}
    times = {cold: {name: [] for name in able} for cold in (True, False)}
    names = list(able)
    for r in range(options.rounds):
        for i in range(len(names)):
            name = names[(r + i) % len(names)]
            for cold in (True, False):
                times[cold][name].append(clock.turn(able[name], inputs if cold else inputs[:1], calls[name], cold))
    return {cold: {name: statistics.median(t) for name, t in of.items()} for cold, of in times.items()}, out


def floor_of(case, copy_rate, product_rate):
    """Microseconds."""
    return 1e6 * max(case.bytes / copy_rate, case.flops / product_rate)


def row_of(case, times, floor):
    """A line of the table: cold."""
    mine, others = times.get("napier"), {name: t for name, t in times.items() if name != "napier"}
    best = min(others, key=others.get) if others else None
    cells = [case.name, f"{mine:.1f}" if mine else "-", f"{floor:.1f}", f"{mine / floor:.2f}" if mine else "-",
             f"{best} {others[best]:.1f}" if best else "-", f"{others[best] / mine:.2f}" if best and mine else "-"]
    return "| " + " | ".join(cells) + " |"


def main():
    options = arguments()
    cases = [case for case in all_cases() if re.search(options.only, case.name)]
    if options.list:
        print(*(f"{case.name}: {', '.join(case.peers)}" for case in cases), sep="\n")
        return 0
    if torch is None or not torch.cuda.is_available():
        print("no CUDA device" if torch else "no PyTorch in this environment", file=sys.stderr)
        return 77
    clock = Clock()
    copy_rate, product_rate = rates(clock)
    device = torch.cuda.get_device_name(0)
    print(f"{device}: copy {copy_rate / 1e12:.2f} TB/s, product of bf16 {product_rate / 1e12:.0f} TFLOP/s, "
          f"PyTorch {torch.__version__}", flush=True)
    table, wrong = [], False
    for case in cases:
        times, out = measure(clock, case, options)
        floor = floor_of(case, copy_rate, product_rate)
        for name, why in out.items():
            print(f"  {case.name}: {name}: {why}", flush=True)
        wrong = wrong or "wrong" in out.get("napier", "")
        table.append(row_of(case, times[True], floor))
        print(table[-1], flush=True)
        if options.output:
            with open(options.output, "a", encoding="ascii") as file:
                print(json.dumps({"case": case.name, "device": device, "floor_us": floor, "cold_us": times[True],
                                  "warm_us": times[False], "missing": out, "copy_rate": copy_rate,
                                  "product_rate": product_rate}), file=file)
        torch.cuda.empty_cache()
    print("\n| case (cold) | napier, us | floor | x floor | best peer, us | peer / napier |\n|---|---|---|---|---|---|",
          *table, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())
