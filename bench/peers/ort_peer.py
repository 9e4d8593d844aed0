"""ONNX Runtime: one graph of one node per operation and axis, bound to memory that is already there.

It has no setting that holds it to an instruction set. For AVX2 a copy of its library is loaded whose test of the processor
finds no registers of 512 bits: one instruction before that test, `not`, is left out."""
import functools
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import numpy as np


def load_held_to_avx2():
    name = "onnxruntime.capi.onnxruntime_pybind11_state"
    library = next(Path(importlib.util.find_spec("onnxruntime").origin).parent.glob("capi/onnxruntime_pybind11_state*.so"))
    code, test = library.read_bytes(), bytes.fromhex("48f7d0 a8e0 0f84")  # not rax; test al, 0xe0; je
    if code.count(test) != 1:
        raise ImportError("the test of the processor is not where it is in version 1.32")
    with tempfile.NamedTemporaryFile(suffix=".so") as copy:
        copy.write(code.replace(test, b"\x90\x90\x90" + test[3:]))
        copy.flush()
        spec = importlib.util.spec_from_loader(name, importlib.machinery.ExtensionFileLoader(name, copy.name))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


if os.environ.get("NAPIER_BENCH_ISA") == "avx2":
    load_held_to_avx2()
import onnxruntime
from onnx import TensorProto, helper
from worker import Skip

VERSION = onnxruntime.__version__
onnxruntime.set_default_logger_severity(3)


def graph(op, axis):
    value = helper.make_tensor_value_info
    x = value("x", TensorProto.FLOAT, ["m", "n"])
    y = value("y", TensorProto.FLOAT, ["m", "n"] if op in ("softmax", "log_softmax") else None)
    if op == "softmax":
        node = helper.make_node("Softmax", ["x"], ["y"], axis=axis)
    elif op == "log_softmax":
        node = helper.make_node("LogSoftmax", ["x"], ["y"], axis=axis)
    else:
        axes = [0, 1] if op == "logsumexp_all" else [axis]
        node = helper.make_node("ReduceLogSumExp", ["x"], ["y"], axes=axes, keepdims=0)
    made = helper.make_graph([node], "one", [x], [y])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


@functools.cache
def session(op, axis, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(graph(op, axis), options, ["CPUExecutionProvider"])


def ways(job):
    if job.dtype != "f32":
        raise Skip("no bf16 on the CPU")
    shape = {"logsumexp": (job.rows,), "logsumexp_all": ()}.get(job.op, job.stored)
    x, out = job.arrays["input"], job.result("result", 4 * int(np.prod(shape)))
    chosen = session(job.op, job.axis, job.threads)
    binding = chosen.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, job.stored, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, shape, out.ctypes.data)

    def run():
        chosen.run_with_iobinding(binding)
        return {"result": out.view(np.float32)}

    return {"ort": run}


OPERATIONS = dict.fromkeys(("softmax", "log_softmax", "logsumexp", "logsumexp_all"), ways)
