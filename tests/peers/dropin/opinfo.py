"""PyTorch's own samples of softmax, log_softmax, logsumexp and scaled_dot_product_attention (OpInfo, which its wheel has), with
napier.torch in the place of PyTorch's functions: values, gradients, second derivatives, forward mode, batched gradients.
test_dropin_torch.py runs them.

A case is a check of one sample: (function, check, dtype, index of the sample).
"""
import collections
import functools
import itertools
import sys
import warnings

import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing._internal.common_methods_invocations import op_db, wrapper_set_seed

import napier.torch as nt

OURS = {"softmax": nt.softmax, "log_softmax": nt.log_softmax, "logsumexp": nt.logsumexp,
        "nn.functional.scaled_dot_product_attention": functools.partial(wrapper_set_seed, nt.scaled_dot_product_attention)}
HALVES = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
Case = collections.namedtuple("Case", "function check dtype index")


def _values(op, ours, sample, dtype):
    """PyTorch's own results of 16-bit numbers are rounded more than once, so they are compared with those of float32."""
    want = _wanted(op, sample.transform(lambda x: x.to(HALVES.get(x.dtype, x.dtype)) if isinstance(x, torch.Tensor) else x))
    got = ours(sample.input, *sample.args, **sample.kwargs)
    assert got.dtype == want.dtype or got.dtype == _wanted(op, sample).dtype
    near = {"rtol": 5e-6, "atol": 5e-5} if "attention" in op.name and got.dtype == torch.float32 else {}  # OpInfo's own bound
    torch.testing.assert_close(got, want.to(got.dtype), equal_nan=True, **near)


def _wanted(op, sample):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return op(sample.input, *sample.args, **sample.kwargs)


def _of_tensors(ours, sample):
    """A function of the tensors that require a gradient, and those."""
    given = [sample.input, *sample.args, *sample.kwargs.values()]
    places = [i for i, x in enumerate(given) if isinstance(x, torch.Tensor) and x.requires_grad]

    def function(*tensors):
        values = list(given)
        for i, x in zip(places, tensors, strict=True):
            values[i] = x
        end = len(sample.args) + 1
        return ours(*values[:end], **dict(zip(sample.kwargs, values[end:])))

    return function, tuple(given[i] for i in places)


def _gradients(check, **options):
    def run(op, ours, sample, dtype):
        function, tensors = _of_tensors(ours, sample)
        fast = True if op.gradcheck_fast_mode is None else op.gradcheck_fast_mode  # as in PyTorch's own tests
        if "check_batched_forward_grad" in options:
            options["check_batched_forward_grad"] = op.check_batched_forward_grad
        check(function, tensors, fast_mode=fast, **options)

    return run


_FIRST = {"check_grad_dtypes": True}
_SECOND = {"check_grad_dtypes": True, "check_undefined_grad": True}
CHECKS = {
    "values": _values,
    "gradcheck": _gradients(gradcheck, check_undefined_grad=True, **_FIRST),
    "batched gradients": _gradients(gradcheck, check_batched_grad=True, check_undefined_grad=False, **_FIRST),
    "forward mode": _gradients(gradcheck, check_forward_ad=True, check_backward_ad=False, check_batched_forward_grad=True,
                               check_undefined_grad=False, **_FIRST),
    "gradgradcheck": _gradients(gradgradcheck, check_batched_grad=True, **_SECOND),
    "forward over reverse": _gradients(gradgradcheck, check_fwd_over_rev=True, check_rev_over_rev=False,
                                       check_undefined_grad=False, check_grad_dtypes=True),
}


def _samples(op, check, dtype):
    if check == "values":
        return op.reference_inputs("cpu", dtype)
    return op.sample_inputs("cpu", dtype, requires_grad=True)


def cases(match=""):
    """(case, function that runs it) of the functions with this word in their name."""
    for op in op_db:
        if op.name not in OURS or match and op.name.rpartition(".")[2] != match:
            continue
        name = op.name.rpartition(".")[2] + (" " + op.variant_test_name if op.variant_test_name else "")
        for check in CHECKS:
            wide = {torch.float64, torch.complex128}
            dtypes = op.supported_dtypes("cpu") if check == "values" else op.supported_backward_dtypes("cpu") & wide
            for dtype in sorted(dtypes, key=str):
                torch.manual_seed(0)
                for index, sample in enumerate(_samples(op, check, dtype)):
                    yield Case(name, check, str(dtype).removeprefix("torch."), index), lambda op=op, s=sample, d=dtype, c=check: (
                        CHECKS[c](op, OURS[op.name], s, d))


def run(known, match=""):
    """({(function, check): [passed, all]}, failures that are not in `known`, cases in it that pass). known(case) is a reason or
    None."""
    counts, unexpected, passing = collections.defaultdict(lambda: [0, 0]), [], []
    for case, test in cases(match):
        torch.manual_seed(1)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                test()
            passed, why = True, None
        except Exception as error:  # any failure counts
            passed, why = False, f"{type(error).__name__}: {error}".split("\n")[0]
        counts[case[:2]][0] += passed
        counts[case[:2]][1] += 1
        if passed and known(case):
            passing.append(case)
        if not passed and not known(case):
            unexpected.append((case, why))
    return dict(counts), unexpected, passing


if __name__ == "__main__":
    counts, unexpected, _ = run(lambda case: None, *sys.argv[1:])
    for key, (passed, total) in counts.items():
        print(f"{' '.join(key):60} {passed:4} of {total}")
    for key, group in itertools.groupby(unexpected, lambda f: (f[0][:3], f[1])):
        print(*key[0], len(list(group)), key[1][:200])
