"""What has to do with the process: threads, fork, memory, settings; and that the package is whole."""

import concurrent.futures
import ctypes
import doctest
import gc
import importlib
import inspect
import os
import pathlib
import re
import sys
import threading
import time

import numpy as np
import pytest

import napier
from conftest import bits, refuses, run_python

ROOT = pathlib.Path(__file__).resolve().parents[2]


def some_results():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((37, 3001)).astype(np.float32)
    ids = rng.integers(0, 3001, 37)
    offsets = [0, 10, 37]
    yield napier.softmax(x)
    yield napier.log_softmax(x, 0)
    yield napier.logsumexp(x, axis=None)
    yield napier.softmax_backward(napier.softmax(x), x)
    tokens = napier.token_logprobs(x, ids, entropy=True, loss=True, top_k=3)
    yield from (r for r in tokens if r is not None)
    yield napier.matmul(x, x.T)
    yield napier.kl_full(x, x[::-1])
    yield napier.kl_per_response(tokens.logprobs, tokens.entropy, offsets)
    loss = napier.grpo_loss(tokens.logprobs, [1.0, -1.0], offsets, entropies=tokens.entropy)
    yield from (np.float64(loss.loss), loss.grad_logprobs)
    yield napier.grpo_from_logits(x, ids, [1.0, -1.0], offsets).grad_logits


def test_bits_do_not_depend_on_settings():
    want = [bits(r) for r in some_results()]
    for threads in (1, 2, 7):
        napier.set_num_threads(threads)
        assert napier.get_num_threads() == threads
        assert [bits(r) for r in some_results()] == want, f"{threads} threads"
    napier.set_num_threads(0)
    for isa in ("scalar", "neon", "avx2", "avx512"):
        if napier.isa_available(isa):
            napier.set_isa(isa)
            assert napier.get_isa() == isa
            assert [bits(r) for r in some_results()] == want, isa
    napier.set_numerics(1)
    assert napier.get_numerics() == napier.numerics_version == 1
    assert [bits(r) for r in some_results()] == want, "asked for by its number"


def test_wrong_settings():
    for refused in [
        (lambda: napier.set_num_threads(-1), ValueError, "^threads: -1"),
        (lambda: napier.set_num_threads("2"), TypeError, "^threads: expected an integer"),
        (lambda: napier.set_isa("mmx"), ValueError, "^isa: 'mmx' is not one of 'auto'"),
        (lambda: napier.isa_available(3), ValueError, "^isa: 3"),
        (lambda: napier.set_numerics(napier.numerics_version + 1), NotImplementedError, "^numerics: 2 is not 1"),
        (lambda: napier.set_numerics(-1), NotImplementedError, "^numerics: -1 is not 1"),
    ]:
        refuses(*refused)
    for isa in ("neon", "avx512"):
        if not napier.isa_available(isa):
            refuses(lambda: napier.set_isa(isa), NotImplementedError, "^isa: this machine")


def test_many_threads_at_once():
    want = [bits(r) for r in some_results()]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        for got in pool.map(lambda _: [bits(r) for r in some_results()], range(48)):
            assert got == want


def test_the_gil_is_released():
    """While one thread is in a long call another one runs Python code."""
    napier.set_num_threads(1)
    x = np.zeros((4000, 4000), np.float64)
    out = np.empty_like(x)
    ticks, seen = [], []

    def work():
        for _ in range(50):  # on a busy machine the other thread may sleep through a call
            del ticks[:]
            start = time.perf_counter()
            napier.softmax(x, out=out)
            length = time.perf_counter() - start
            if any(0.1 * length < t - start < 0.9 * length for t in list(ticks)):
                seen.append(True)
                return

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0)
    assert seen


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork():
    """A child of fork has none of its parent's threads; calls must not wait for them, nor for a lock that was held."""
    code = """if True:
        import os, signal, threading, numpy as np, napier
        x = np.random.default_rng(0).standard_normal((600, 3000)).astype(np.float32)
        want = napier.softmax(x).tobytes()
        napier.set_num_threads(4)
        assert napier.softmax(x).tobytes() == want
        stop = False
        def busy():
            while not stop:
                napier.softmax(x)
        threads = [threading.Thread(target=busy) for _ in range(2)]
        for t in threads:
            t.start()
        for _ in range(6):
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                good = napier.get_num_threads() == 4 and napier.softmax(x).tobytes() == want
                napier.release_memory()
                good = good and napier.log_softmax(x, 0).shape == x.shape
                os._exit(0 if good else 3)
            assert os.waitpid(child, 0)[1] == 0
        stop = True
        for t in threads:
            t.join()
        assert napier.get_num_threads() == 4 and napier.softmax(x).tobytes() == want
    """
    run_python("-W", "ignore", "-c", code)


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def calls_right_and_wrong():
    x = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    batch = ([-1.0, -2.0, -0.5], [1.0, -1.0], [0, 2, 3])
    for call in (
        lambda: napier.softmax(x),
        lambda: napier.softmax(x, 0, out=x.copy()),
        lambda: napier.softmax([[1, 2], [3, 4]]),
        lambda: napier.logsumexp(x),
        lambda: napier.logsumexp(x, 0),
        lambda: napier.softmax(x.astype(">f4")),
        lambda: napier.softmax_backward(x, x),
        lambda: napier.logsumexp_all_backward(x, 1.0),
        lambda: napier.token_logprobs(x, [0, 1, 2], entropy=True, top_k=2, keep=[True, True, True, False]),
        lambda: napier.linear_token_logprobs(x, x, [0, 1, 2]),
        lambda: napier.sample(x, top_p=0.5, outputs=[[0], [], [1, 1]]),
        lambda: napier.sample(x, keep=[False] * 4),
        lambda: napier.sample(x, samples=[0]),
        lambda: napier.rl.token_logprobs_backward(x, [0, 1, 2], grad_logprobs=x[0, :3].reshape(3, 1)),
        lambda: napier.grpo_loss(*batch, entropies=[0.1, 0.2, 0.3], mask=[1, 1, 0]),
        lambda: napier.matmul(x, x.T),
        lambda: napier.grpo_from_logits(x, [0, 1, 2], *batch[1:]),
        lambda: napier.kl_full(x, x),
        lambda: napier.kl_per_response(*batch[:1] * 2, batch[2], estimator="k3"),
        lambda: napier.SoftmaxState().update(x[0]).merge(napier.SoftmaxState()).to_bytes(),
        lambda: napier.softmax(x.T, None),
        lambda: napier.softmax(x.T, None, out=x.copy().T),
        lambda: napier.softmax(x, None),
        lambda: napier.softmax((ctypes.c_float * 3)()),
        lambda: napier.logsumexp_backward(x.T, 1.0, None),
        lambda: napier.softmax_backward(x.T, x.T, None),
        lambda: napier.softmax_backward(x, x, None, out=np.zeros((3, 8))[:, ::2]),
        # errors at every stage
        lambda: napier.softmax(x, out=x.astype(float), dtype="float32"),
        lambda: napier.softmax(x.T, None, out=x),
        lambda: napier.softmax(x.T, None, temperature=0),
        lambda: napier.logsumexp_backward(x, x, None),
        lambda: napier.softmax("a"),
        lambda: napier.softmax(x, 7),
        lambda: napier.softmax(x, dtype="int"),
        lambda: napier.softmax(x, out=x[0]),
        lambda: napier.softmax(x, temperature=-1),
        lambda: napier.softmax(1, 2, 3),
        lambda: napier.softmax_backward(x, x[0]),
        lambda: napier.logsumexp_backward(x, x),
        lambda: napier.token_logprobs(x, [0, 1, 9]),
        lambda: napier.token_logprobs(x, [0.5, 1, 2]),
        lambda: napier.token_logprobs(x, [0, 1, 2], keep=[True]),
        lambda: napier.grpo_loss(*batch, colour=3),
        lambda: napier.grpo_loss(batch[0], batch[1], [0, 2, 1]),
        lambda: napier.SoftmaxState("int"),
        lambda: napier.SoftmaxState.from_bytes(b"123"),
        lambda: napier.matmul(x, x),
        lambda: napier.matmul(x, 3),
    ):
        try:
            call()
        except (ValueError, TypeError, IndexError):
            pass


def test_memory_is_flat():
    """Small calls, and calls that fail, many times over: objects and bytes stay as many as they were. One object lost in any
    of the calls would be 2000."""
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("no /proc/self/statm")
    for _ in range(300):
        calls_right_and_wrong()
    gc.collect()
    blocks, before = sys.getallocatedblocks(), resident_bytes()
    for _ in range(2000):
        calls_right_and_wrong()
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 1500
    x = np.ones(4, np.float32)
    for _ in range(100_000):
        napier.softmax(x)
    assert resident_bytes() - before < 4_000_000
    assert sys.getallocatedblocks() - blocks < 1500


def test_memory_of_large_results_comes_back():
    x = np.zeros((1024, 1024), np.float32)
    napier.release_memory()
    y = napier.softmax(x)
    place = y.ctypes.data
    view = y[3:5]
    del y
    assert napier.softmax(x).ctypes.data != place  # the view still holds it
    assert view.min() == view.max() == np.float32(2.0**-10)
    del view
    assert place in (napier.softmax(x).ctypes.data for _ in range(3))
    assert napier.release_memory() >= x.nbytes
    assert napier.release_memory() == 0
    huge = np.zeros((4096, 4097), np.float32)  # a block whose pages the system may take while nobody uses it
    place = napier.softmax(huge).ctypes.data
    again = napier.softmax(huge)
    assert again.ctypes.data == place and again.min() == again.max() == np.float32(1 / 4097)
    results = [napier.softmax(x) for _ in range(3)]
    assert len({r.ctypes.data for r in results}) == 3 and all(r.ctypes.data % 64 == 0 for r in results)


def test_results_too_large_are_refused():
    g = np.ones(4, np.float32)
    refuses(lambda: napier.rl.gather_logprobs_backward(g, [0, 0, 0, 0], 2**62), (MemoryError, ValueError))
    refuses(lambda: napier.rl.gather_logprobs_backward(g, [0, 0, 0, 0], -1), ValueError, "dimension of size -1")


# ---- The package is whole -------------------------------------------------------------------------------------------------


def test_public_functions_have_docstrings():
    for module in (napier, napier.rl):
        for name in module.__all__:
            assert inspect.getdoc(getattr(module, name)) or name in ("numerics_version", "__version__"), name


# Functions of the C API that Python users reach in another way, or need not.
OTHERWISE = {
    "version": "napier.__version__",
    "numerics_version": "napier.numerics_version",
    "dtype_name": "array.dtype.name",
    "status_string": "exceptions",
    "last_error": "exceptions",
    "dtype_size": "array.itemsize",
    "context_create": "set_num_threads, set_isa",
    "context_destroy": "set_num_threads, set_isa",
    "context_threads": "get_num_threads",
    "matrix_engine": "napier info",
    "context_isa": "get_isa",
    "isa_name": "get_isa",
    "context_set_interrupt": "Ctrl-C",
    "context_progress": "progress",
    "softmax_state_create": "SoftmaxState",
    "softmax_state_destroy": "SoftmaxState",
    "softmax_state_update": "SoftmaxState",
    "softmax_state_merge": "SoftmaxState",
    "softmax_state_finish": "SoftmaxState",
    "softmax_state_apply": "SoftmaxState",
    "softmax_state_create_weighted": "SoftmaxState(weighted=True)",
    "softmax_state_update_weighted": "SoftmaxState",
    "softmax_state_finish_weighted": "SoftmaxState",
    "softmax_state_first_index": "SoftmaxState",
    "softmax_state_count": "SoftmaxState",
    "softmax_state_size": "SoftmaxState.to_bytes",
    "softmax_state_to_bytes": "SoftmaxState.to_bytes",
    "softmax_state_from_bytes": "SoftmaxState.from_bytes",
    "logsumexp_weighted": "logsumexp(a, b=...)",
    "matmul_split": "matmul(a, b, split=True)",
    "linear_token_logprobs_workspace": "memory is the package's own affair",
    "set_error": "for C libraries",
    "load": "CausalLM, Tokenizer",
    "from_json": "Tokenizer",
    "destroy": "CausalLM, Tokenizer",
    "get_info": "CausalLM.info",
    "batch_plan": "CausalLM.plan",
    "from_tensors": "CausalLM.from_state_dict, from_model",
    "encode_texts": "CausalLM.batch_logprobs",
    "token_buffer_free": "Tokenizer",
    "kv_create": "CausalLM.kv",
    "kv_extend": "CausalLM.kv(after=)",
    "kv_destroy": "CausalLM.kv",
    "kv_tokens": "len(CausalLM.kv())",
    "kv_bytes": "CausalLM.kv().nbytes",
    "chat_text": "Tokenizer.chat",
    "chat_format_of": "Tokenizer.chat",
    "chat_format_load": "Tokenizer.chat",
    "chat_template_create": "Tokenizer.chat",
    "chat_template_load": "Tokenizer.chat",
    "chat_template_mentions": "Tokenizer.chat",
    "chat_template_destroy": "Tokenizer.chat",
    "gguf_document": "CausalLM and Tokenizer of a .gguf file",
    "exp": "derivatives of other functions",
    "log": "derivatives of other functions",
    "dot_rows": "derivatives of other functions",
    "text_buffer_free": "Tokenizer",
    "tensor": "napier check-model",
    "tensor_count": "napier check-model",
    "vocab_size": "len(Tokenizer)",
    "id": "Tokenizer.id_of",
}


def public_c_functions():
    for header in sorted((ROOT / "include" / "napier").glob("*.h")):
        for name in re.findall(r"^NAPIER_API[^;(]*?\bnapier_(\w+)\s*\(", header.read_text(), re.M):
            yield header.stem, name


@pytest.mark.skipif(not (ROOT / "include" / "napier").is_dir(), reason="no headers here")
def test_every_c_function_has_a_python_function():
    missing = []
    found = list(public_c_functions())
    assert len(found) > 60
    for room, name in found:
        if room in ("umap", "shards", "opencl"):  # test_umap.py; napier.torch.distributed; not in Python
            continue
        homes = [napier, napier.rl, napier.CausalLM, napier.Tokenizer]
        name = name.removeprefix("model_").removeprefix("tokenizer_") if room in ("model", "tokenizer") else name
        if name not in OTHERWISE and not any(hasattr(home, name) for home in homes):
            missing.append(name)
    assert not missing


def test_importing_takes_nothing_heavy_along():
    code = (
        "import sys, napier; print([m for m in ('scipy', 'sklearn', 'torch', 'matplotlib', 'ml_dtypes') if m in sys.modules]);"
        "napier.UMAP; assert 'matplotlib' not in sys.modules"
    )
    assert run_python("-c", code).strip() == "[]"


@pytest.mark.skipif(not (pathlib.Path(napier.__file__).parent / "libs").is_dir(), reason="built without its libraries")
def test_a_wheel_brings_its_libraries():
    """So that it runs where cJSON, PCRE2 and utf8proc are not installed: the process uses those beside it."""
    code = "import napier; print(open('/proc/self/maps').read(), napier.__file__)"
    said = run_python("-c", code)
    home = pathlib.Path(said.split()[-1]).parent
    used = set(re.findall(r"\S*/lib(?:cjson|pcre2-8|utf8proc)\.so\S*", said))
    assert used and {pathlib.Path(path).parent for path in used} == {home / "libs"}, used


def signatures_in_stubs(tree, prefix=""):
    import ast

    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from signatures_in_stubs(node, node.name + ".")
        elif isinstance(node, ast.FunctionDef) and not node.decorator_list and not node.name.startswith("__"):
            a = node.args
            names = [x.arg for x in a.posonlyargs + a.args if x.arg != "self"]
            yield prefix + node.name, names, [x.arg for x in a.kwonlyargs]


def found_signature(target):
    parameters = [
        p for p in inspect.signature(target).parameters.values() if p.name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    return [p.name for p in parameters if p.kind != p.KEYWORD_ONLY], [p.name for p in parameters if p.kind == p.KEYWORD_ONLY]


STUBBED = ["_napier", "hf", "torch.data_parallel", "torch.distributed", "_umap.parametric"]


def stubbed(name):
    import ast

    place = pathlib.Path(napier.__file__).parent / name.replace(".", "/")
    tree = ast.parse(place.with_name(place.name + ".pyi").read_text())
    return {name: (names, keywords) for name, names, keywords in signatures_in_stubs(tree)}


@pytest.mark.parametrize("name", STUBBED)
def test_stubs_have_the_signatures_of_the_package(name):
    assert (pathlib.Path(napier.__file__).parent / "py.typed").exists()
    stubs = stubbed(name)
    for library in ("torch", "transformers") if name.startswith(("hf", "torch")) else ():
        pytest.importorskip(library)
    module = importlib.import_module("napier." + name)
    for function, wanted in stubs.items():
        target = module
        for part in function.split("."):
            target = getattr(target, part)
        assert found_signature(target) == wanted, function
    for function, target in vars(module).items():  # and nothing public lacks a stub
        if not function.startswith("_") and inspect.isfunction(target) and target.__module__ == module.__name__:
            assert function in stubs or target.__name__ in stubs, f"{function} is not in {name}.pyi"


def test_public_functions_of_the_extension_have_stubs():
    import napier._napier as extension

    stubs = stubbed("_napier")
    for name in napier.__all__:
        if getattr(extension, name, None) is getattr(napier, name) and callable(getattr(napier, name)):
            assert name in stubs or inspect.isclass(getattr(napier, name)), f"{name} is not in the stubs"


@pytest.mark.skipif(not (ROOT / "docs" / "python.md").exists(), reason="no docs here")
@pytest.mark.parametrize("page", ["python.md", "tutorials/maps.md", "tutorials/rl.md"])
def test_examples_in_the_documentation(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert doctest.testfile(str(ROOT / "docs" / page), module_relative=False).failed == 0


def test_torch_is_optional():
    code = """if True:
        import sys
        sys.modules["torch"] = None
        import inspect, napier
        assert not hasattr(napier, "torch")
        try:
            napier.torch
        except AttributeError as error:
            print(error)
    """
    assert run_python("-c", code).startswith("napier.torch: ")
