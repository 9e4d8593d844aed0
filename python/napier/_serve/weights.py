"""New weights for a model that is served."""

import contextlib
import os
import tempfile

from .. import CausalLM
from .protocol import Refused


def _inside(folder, path):
    """The real path of `path`, which is relative to `folder` and lies in it."""
    if not isinstance(path, str) or not path or "\0" in path:
        raise Refused("path: expected a text", "path")
    root = os.path.realpath(folder)
    real = os.path.realpath(os.path.join(root, path))
    if os.path.commonpath([root, real]) != root or not os.path.exists(real):
        raise Refused(f"path: {path!r} is not in the folder of weights", "path", 404)
    return real


def _links(path):
    """The files of a checkpoint, by the names that they have in a model's folder."""
    if os.path.isfile(path):
        return {"model.safetensors": path}
    return {name: os.path.join(path, name) for name in os.listdir(path) if name.endswith((".safetensors", ".safetensors.index.json"))}


def load(model, folder, path):
    """A model like `model` with the weights of `path`: a .safetensors file, or a folder that has model.safetensors or shards. The
    configuration and the tokenizer stay."""
    config = os.path.join(model.directory or "", "config.json")
    if not os.path.isfile(config):
        raise Refused("path: the weights of this model cannot be changed, because it has no config.json", "path")
    links = {**_links(_inside(folder, path)), "config.json": os.path.abspath(config)}
    with tempfile.TemporaryDirectory() as place:
        for name, target in links.items():
            os.symlink(target, os.path.join(place, name))
        try:
            new = CausalLM(place, **model._options)
        except (ValueError, OSError, MemoryError) as error:
            raise Refused(f"path: {str(error).replace(place, path)}", "path") from None
    differ = [key for key in ("parameters", "vocabulary", "hidden") if new.info[key] != model.info[key]]
    if differ:
        raise Refused(f"path: {differ[0]} is {new.info[differ[0]]}, not {model.info[differ[0]]}", "path")
    new.tokenizer, new.directory, new._changed = model.tokenizer, model.directory, True
    return new


@contextlib.contextmanager
def one_at_a_time(lock):
    if not lock.acquire(blocking=False):
        raise Refused("weights are being loaded; try again when that has ended", status=409, code="busy")
    try:
        yield
    finally:
        lock.release()
