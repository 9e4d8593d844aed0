#!/usr/bin/env python3
"""napier_matmul against torch.matmul, weights stored as [n, k]: the two in turn, fastest and first quartile.

    bench_matmul.py WORKER [--threads 2] [--seconds 5] [--dtype f32|bf16] [--cpu] MxKxN...

WORKER is matmul_worker.c, built with the library. --cpu: processor time in place of the clock's, for a machine
that is busy with other things (one thread only). Set OMP_WAIT_POLICY=passive."""
import argparse
import subprocess
import time

import torch

words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
words.add_argument("worker")
words.add_argument("shapes", nargs="+")
words.add_argument("--threads", type=int, default=2)
words.add_argument("--seconds", type=float, default=5.0)
words.add_argument("--dtype", default="f32", choices=("f32", "bf16"))
words.add_argument("--cpu", action="store_true")
args = words.parse_args()
clock = time.process_time if args.cpu else time.perf_counter
torch.set_num_threads(args.threads)
torch.set_grad_enabled(False)


def quartile(times):
    return sorted(times)[len(times) // 4]


heads = {"m x k x n": 20, "torch ms": 10, "q1": 10, "napier ms": 10, "q1 ": 10, "GFLOP/s": 8, "ratio": 6, " q1": 6}
print(" ".join(head.rjust(width) for head, width in heads.items()))
for shape in args.shapes:
    m, k, n = (int(part) for part in shape.split("x"))
    dtype = torch.float32 if args.dtype == "f32" else torch.bfloat16
    a, weights = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
    out = torch.empty(m, n, dtype=dtype)
    command = [args.worker, str(m), str(k), str(n), args.dtype, str(args.threads), "cpu" if args.cpu else "wall"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        torch_times, napier_times = [], []
        end = time.time() + args.seconds
        while time.time() < end or len(napier_times) < 3:
            for _ in range(3):
                start = clock()
                torch.matmul(a, weights.t(), out=out)
                torch_times.append(clock() - start)
            for _ in range(3):
                worker.stdin.write("x\n")
                worker.stdin.flush()
                napier_times.append(float(worker.stdout.readline()))
        worker.stdin.close()
    best, ours = min(torch_times), min(napier_times)
    print(f"{shape:>20} {best * 1e3:10.3f} {quartile(torch_times) * 1e3:10.3f} {ours * 1e3:10.3f} "
          f"{quartile(napier_times) * 1e3:10.3f} {2e-9 * m * k * n / ours:8.1f} {best / ours:6.2f} "
          f"{quartile(torch_times) / quartile(napier_times):6.2f}", flush=True)
