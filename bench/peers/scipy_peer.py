"""SciPy: scipy.special's own functions, on one thread."""
import numpy as np
import scipy
import scipy.special
from worker import Skip

VERSION = scipy.__version__


def reduction(function):
    def ways(job):
        if job.dtype != "f32":
            raise Skip("no bf16")
        if job.threads > 1:
            raise Skip("one thread only")
        x = job.arrays["input"].view(np.float32).reshape(job.stored)
        axis = None if job.op == "logsumexp_all" else job.axis
        return {"scipy": lambda: {"result": function(x, axis=axis)}}
    return ways


OPERATIONS = {"softmax": reduction(scipy.special.softmax), "log_softmax": reduction(scipy.special.log_softmax),
              "logsumexp": reduction(scipy.special.logsumexp), "logsumexp_all": reduction(scipy.special.logsumexp)}
