"""napier.ray under Ray Data: the same rows for any number of actors and batches, also when an actor dies."""
import importlib
import logging
import os
import pathlib
import sys
import tempfile

import numpy as np

import napier
import napier.ray
from napier import _napier
from support import ROOT, Skip

PROMPTS = [f"prompt {i}: hello" for i in range(40)]


class Deadly(napier.ray.Generate):
    """The first actor that gets prompt 17 ends its process."""

    def __init__(self, marker, *arguments, **options):
        super().__init__(*arguments, **options)
        self.marker = marker

    def __call__(self, batch):
        if 17 in batch["number"]:
            try:
                os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
                os._exit(1)
            except FileExistsError:
                pass
        return super().__call__(batch)


def start():
    if not _napier._has_model:
        raise Skip("this build has no model")
    try:
        import ray
        import ray.data  # noqa: F401
    except ImportError as error:
        raise Skip(f"ray: {error}") from None
    if not ray.is_initialized():
        paths = os.pathsep.join(filter(None, [os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH")]))
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
                 object_store_memory=200 << 20, runtime_env={"env_vars": {"PYTHONPATH": paths}})
        ray.data.DataContext.get_current().enable_progress_bars = False
        for name in ("ray", "ray.data"):
            logging.getLogger(name).setLevel(logging.ERROR)
    return ray


def deadly(ray, marker, **options):
    data = ray.data.from_items([{"number": i, "prompt": p} for i, p in enumerate(PROMPTS)], override_num_blocks=4)
    return data.map_batches(Deadly, fn_constructor_kwargs={"marker": marker, **options}, batch_size=3, num_cpus=0.5,
                            compute=ray.data.ActorPoolStrategy(size=2))


def judge(ray, folder):
    rows = [{"number": i, "prompt": p, "response": f"answer {i * i}"} for i, p in enumerate(PROMPTS)]
    want = napier.ray.Judge(folder, ["It is right.", "It is short."])({name: np.array([row[name] for row in rows]) for name in rows[0]})
    data = ray.data.from_items(rows, override_num_blocks=4).map_batches(
        napier.ray.Judge, fn_constructor_kwargs={"model": folder, "criteria": ["It is right.", "It is short."]}, batch_size=3,
        num_cpus=0.5, compute=ray.data.ActorPoolStrategy(size=2))
    for row in data.take_all():
        assert np.asarray(row["scores"], np.float32).tobytes() == want["scores"][row["number"]].tobytes()
        assert np.float32(row["reward"]).tobytes() == want["reward"][row["number"]].tobytes()


def test_actors():
    ray = start()
    sys.path.insert(0, os.path.join(ROOT, "tests", "python"))
    write_model = importlib.import_module("test_model").write_model
    with tempfile.TemporaryDirectory() as folder:
        write_model(pathlib.Path(folder))
        options = dict(model=folder, samples=2, max_tokens=6, seed=3)
        want = napier.CausalLM(folder).generate(PROMPTS, samples=2, max_tokens=6, seed=3, texts=True)
        sys.path.insert(0, os.path.join(ROOT, "examples"))
        example = importlib.import_module("ray_generate")
        for data in (example.samples_of(PROMPTS, actors=1, batch_size=7, cpus=0.5, **options),
                     deadly(ray, os.path.join(folder, "dead"), **options)):
            found = sorted(data.take_all(), key=lambda row: (row["number"], row["sample"]))
            assert len(found) == 80 and [row["text"] for row in found] == want.texts
            tokens = np.concatenate([np.asarray(row["token_ids"], np.int64) for row in found])
            logprobs = np.concatenate([np.asarray(row["plain_logprobs"], np.float32) for row in found])
            assert np.array_equal(tokens, want.token_ids) and logprobs.tobytes() == want.plain_logprobs.tobytes()
        assert os.path.exists(os.path.join(folder, "dead")), "no actor died"
        judge(ray, folder)
    ray.shutdown()
