"""uwot, each fit in an R of its own, which tells its seconds and its memory."""
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).resolve().parent / "uwot.R"
FIGURES = {}


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


VERSION = said("Rscript", "-e", "cat(as.character(packageVersion('uwot')))")


def fit(job):
    def way():
        with tempfile.TemporaryDirectory() as folder:
            data, map_ = Path(folder) / "data", Path(folder) / "map"
            job.arrays["data"].tofile(data)
            words = [data, job.rows, job.cols, map_, job.threads, job.n_neighbors]
            FIGURES.update(json.loads(said("Rscript", str(SCRIPT), *map(str, words)).splitlines()[-1]))
            return {"map": np.fromfile(map_, np.float32).reshape(-1, 2)}

    return {"uwot": way}


OPERATIONS = {"fit": fit}
