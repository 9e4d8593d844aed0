"""SciPy: scipy.special's own functions, on one thread."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import scipy  # noqa: E402
import scipy.special  # noqa: E402
from worker import Skip, serve  # noqa: E402


class Scipy:
    variants = ("scipy",)

    def prepare(self, job):
        if job.dtype != "f32":
            raise Skip("no bf16")
        if job.threads > 1:
            raise Skip("one thread only")
        self.x, self.axis = job.input, None if job.whole else job.axis
        self.call = {"softmax": scipy.special.softmax, "log_softmax": scipy.special.log_softmax}.get(
            job.op, scipy.special.logsumexp)

    def run(self, variant):
        self.y = None
        self.y = self.call(self.x, axis=self.axis)

    def result(self, variant):
        return self.y

    def release(self):
        self.x = self.y = None


serve("scipy", scipy.__version__, Scipy(), int(sys.argv[1]))
