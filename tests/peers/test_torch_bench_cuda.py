"""bench/cuda without a GPU: its Triton kernels in Triton's interpreter, its cases on the CPU at small shapes (their inputs,
contestants and checks), and what the program says where there is no device."""
import functools
import os
import sys
import tempfile

import torch

import support

FOLDER = os.path.join(support.ROOT, "bench", "cuda")
python = functools.partial(support.python, cwd=FOLDER)


def test_bench_cuda_says_that_there_is_no_device():
    assert python("bench_cuda.py", "--help").returncode == 0
    listed = python("bench_cuda.py", "--list")
    assert listed.returncode == 0 and "softmax 4x100000000 bf16: napier, torch" in listed.stdout
    for program in ("bench_cuda.py", "counts.py"):
        done = python(program, CUDA_VISIBLE_DEVICES="")
        assert done.returncode == 77 and done.stderr.strip().endswith("no CUDA device"), (program, done.stderr)


def test_bench_cuda_counts_of_a_profile():
    head = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        log.write("==PROF== Connected\n" + head + '"0","napier_softmax_rows_bf16","smsp__inst_executed.sum","inst","195,000,000"\n')
        log.flush()
        done = python("counts.py", "--report", os.path.join(support.ROOT, "tests/cuda/loops.txt"), log.name)
    assert "| napier_softmax_rows_bf16 | 1312 | 1278 |" in done.stdout, done.stdout + done.stderr


INTERPRETED = """
import torch, triton_softmax
for rows, columns in ((3, 1), (2, 7), (2, 8192), (2, 8193), (1, 20000)):
    for dtype, bound in ((torch.float32, 1e-6), (torch.bfloat16, 4e-3)):
        x = (torch.randn(rows, columns) * 3 - 100).to(dtype)
        if columns > 1:
            x[0, :min(columns - 1, 8500)] = -torch.inf      # the first blocks of a row hold nothing
        for softmax in (triton_softmax.three_pass, triton_softmax.online):
            error = (softmax(x).double() - torch.softmax(x.double(), -1)).abs().max().item()
            assert error <= bound, (rows, columns, dtype, softmax.__name__, error)
print("right")
"""


def test_bench_cuda_triton_kernels():
    done = python("-c", INTERPRETED, TRITON_INTERPRET="1")
    if "No module named 'triton'" in done.stderr:
        raise support.Skip("no Triton")
    assert done.stdout.strip() == "right", done.stderr[-2000:]


def test_bench_cuda_cases_on_the_cpu():
    sys.path.insert(0, FOLDER)
    import cases
    sys.path.remove(FOLDER)

    cases.DEVICE, cases.RESPONSE = "cpu", 4
    some = [cases._map_case(op, 5, 33, dtype) for op in ("softmax", "log_softmax") for dtype in ("f32", "bf16")]
    some += [cases._token_case(6, 50, everything) for everything in (False, True)]
    some += [cases._linear_case(8, 16, 40, gradient) for gradient in (False, True)]
    some += [cases._logsumexp_all_case(1000), cases._grpo_case(8, 40), cases._attention_case(2, 2, 9, 8)]
    for case in some:
        inputs = case.make(torch.Generator().manual_seed(1))
        for name in ("napier", "torch"):
            share = case.check(inputs, case.peers[name]()(*inputs))
            assert share <= 1.0, f"{case.name}: {name}: {share:.2f} times the allowed error"
    first = some[0].make(torch.Generator().manual_seed(1))
    assert some[0].check(first, torch.full((5, 33), torch.nan)) == float("inf"), "poison must be found"
