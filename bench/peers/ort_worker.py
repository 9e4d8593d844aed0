"""ONNX Runtime: one graph of one node per operation and axis, bound to memory that is already there."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from worker import Skip, serve  # noqa: E402


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


class Ort:
    variants = ("ort",)

    def __init__(self, threads):
        self.threads, self.sessions = threads, {}

    def session(self, op, axis):
        if (op, axis) not in self.sessions:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = self.threads
            options.inter_op_num_threads = 1
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            self.sessions[op, axis] = onnxruntime.InferenceSession(graph(op, axis), options, ["CPUExecutionProvider"])
        return self.sessions[op, axis]

    def prepare(self, job):
        if job.dtype != "f32":
            raise Skip("no bf16 on the CPU")
        self.output = job.output
        self.chosen = self.session(job.op, job.axis)
        self.binding = self.chosen.io_binding()
        self.binding.bind_input("x", "cpu", 0, np.float32, job.input.shape, job.input.ctypes.data)
        shape = () if job.whole else job.output.shape
        self.binding.bind_output("y", "cpu", 0, np.float32, shape, job.output.ctypes.data)

    def run(self, variant):
        self.chosen.run_with_iobinding(self.binding)

    def result(self, variant):
        return self.output

    def release(self):
        self.binding = self.output = None


threads = int(sys.argv[1])
onnxruntime.set_default_logger_severity(3)
serve("ort", onnxruntime.__version__, Ort(threads), threads)
