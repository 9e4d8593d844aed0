"""JAX on the CPU, compiled. It owns its results: the driver has malloc keep and reuse their memory, in huge pages."""
import jax
import ml_dtypes
import numpy as np

VERSION = jax.__version__


def reduction(function):
    def ways(job):
        jax.clear_caches()
        data = job.arrays["input"].view(ml_dtypes.bfloat16 if job.dtype == "bf16" else np.float32)
        x = jax.device_put(data.reshape(job.stored), may_alias=True)
        axis = None if job.op == "logsumexp_all" else job.axis
        call = jax.jit(lambda x: function(x, axis=axis))
        return {"jax": lambda: {"result": call(x).block_until_ready()}}
    return ways


OPERATIONS = {"softmax": reduction(jax.nn.softmax), "log_softmax": reduction(jax.nn.log_softmax),
              "logsumexp": reduction(jax.scipy.special.logsumexp),
              "logsumexp_all": reduction(jax.scipy.special.logsumexp)}
