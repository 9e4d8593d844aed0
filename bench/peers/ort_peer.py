"""ONNX Runtime: one graph of one node per operation and axis, bound to memory that is already there."""
import functools

import numpy as np
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
