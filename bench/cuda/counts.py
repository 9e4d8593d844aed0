"""Warp instructions that kernels execute on a GPU, beside those that tests/cuda/ptx.sh counts in nvcc's code.

    ncu --csv --kernel-name-base function -k regex:^napier_ --metrics METRICS python counts.py >LOG       calls each kernel
    python counts.py --report tests/cuda/loops.txt LOG                                                    the table

METRICS are smsp__inst_executed.sum,dram__bytes_read.sum,gpu__time_duration.sum. Each call is of 1024 x 151,936 logits in bf16.
What is executed above the counted is the end of each row, the other tiles, and waiting in loops.
"""
import csv
import re
import sys

ROWS, COLUMNS, RESPONSE = 1024, 151_936, 512
TILES = ROWS * -(-COLUMNS // 1024)


def call():
    import torch
    from napier import torch as nt

    if not torch.cuda.is_available():
        print("no CUDA device", file=sys.stderr)
        return 77
    x = torch.randn(ROWS, COLUMNS, device="cuda").bfloat16().mul_(3).requires_grad_()
    ids = torch.randint(COLUMNS, (ROWS,), device="cuda")
    nt.softmax(x.detach())
    nt.token_logprobs(x.detach(), ids, entropy=True)
    advantages = torch.randn(ROWS // RESPONSE, device="cuda")
    offsets = torch.arange(0, ROWS + 1, RESPONSE, device="cuda")
    nt.grpo_from_logits(x, ids, advantages, offsets, loss_type="bnpo")[0].backward()
    torch.cuda.synchronize()
    return 0


def report(loops, log):
    counted = {}
    with open(loops, encoding="ascii") as file:
        for line in file:
            if not line.startswith("#"):
                _, kernel, *parts = line.split()
                counted[kernel] = sum(int(part.split(":")[-1]) for part in parts)
    measured = {}
    with open(log, encoding="utf-8", errors="replace") as file:
        for row in csv.DictReader(line for line in file if line.startswith('"')):
            value = float(re.sub("[^0-9.]", "", row["Metric Value"]) or "nan")
            measured.setdefault(row["Kernel Name"], {})[row["Metric Name"]] = value, row["Metric Unit"]
    print("| kernel | instructions a tile, counted at most | executed | bytes read | time |\n|---|---|---|---|---|")
    for kernel, of in measured.items():
        cell = {name: f"{value:.4g} {unit}" for name, (value, unit) in of.items()}
        print(f"| {kernel} | {counted.get(kernel, '-')} | {of['smsp__inst_executed.sum'][0] / TILES:.0f} | "
              f"{cell.get('dram__bytes_read.sum', '-')} | {cell.get('gpu__time_duration.sum', '-')} |")
    return 0


if __name__ == "__main__":
    sys.exit(report(*sys.argv[2:]) if sys.argv[1:2] == ["--report"] else call())
