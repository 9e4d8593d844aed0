"""napier.umap.parametric_loss and ParametricUMAP, with PyTorch as the judge of gradients; and umap-learn's own tests of its
ParametricUMAP (UMAP_LEARN_TESTS names the folder umap/tests of its repository)."""
import copy
import os
import pathlib
import pickle
import re

import numpy as np
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits

from napier import umap
from support import ROOT, Skip, python, raises

# Tests of umap-learn that fail with Napier, and why.
KNOWN = {"test_custom_encoder_decoder": "its networks are Keras models"}


def test_loss_and_gradient():
    draw = torch.Generator().manual_seed(1)
    source, target = (torch.randn(9, 3, dtype=torch.float64, generator=draw) for _ in range(2))
    negatives = torch.randn(9, 4, 3, dtype=torch.float64, generator=draw)
    for tensor in (source, target, negatives):
        tensor.requires_grad_()
    a, b = umap.find_ab_params()
    assert torch.autograd.gradcheck(lambda *t: umap.parametric_loss(*t, a, b, 0.7), (source, target, negatives))
    near = (source - target).square().sum(1) ** b
    far = ((source[:, None] - negatives).square().sum(2) + 1e-3) ** b
    truth = torch.log(1 + a * near).sum() - 0.7 * torch.log(1 - 1 / (1 + a * far)).sum()
    assert abs(float(umap.parametric_loss(source, target, negatives, a, b, 0.7) - truth / 45)) < 1e-12
    places = torch.zeros(4, 2, requires_grad=True)  # all at one place: no gradient, and none that is not a number
    umap.parametric_loss(places, places, places[:, None].expand(4, 5, 2)).backward()
    assert (places.grad == 0).all()


def test_loss_is_that_of_the_library():
    places = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    targets = umap.negative_targets(20, 5)
    edges = (np.arange(20), (np.arange(20) * 7 + 1) % 20, np.ones(20))
    y, drawn = torch.as_tensor(places), torch.as_tensor(targets.astype(np.int64))
    ours = float(umap.parametric_loss(y, y[torch.as_tensor(edges[1])], y[drawn])) * 20 * 6
    skipped = np.flatnonzero(targets == np.arange(20)[:, None])  # the library leaves a point itself out
    own = len(skipped) * np.log1p(1 / (1.57694346 * 1e-3 ** 0.895060879))
    assert abs(ours - own - umap.loss(places, umap.sort_edges(edges), targets)) < 1e-3 * ours


def test_maps_of_digits():
    data, labels = load_digits(return_X_y=True)
    data, labels = data[:900] / 16, labels[:900]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        mapper = umap.ParametricUMAP(n_epochs=40, parametric_reconstruction=True, batch_size=250, random_state=3)
        places = mapper.fit_transform(data[:700], labels[:700])
        again = clone(mapper).set_params(encoder=None, decoder=None).fit(data[:700], labels[:700])
    finally:
        torch.set_num_threads(threads)
    assert (again.embedding_ == places).all()
    assert np.mean(mapper._history["loss"][-2:]) < 0.8 * mapper._history["loss"][0]
    new = mapper.transform(data[700:])
    assert np.allclose(mapper.transform(data[700:701]), new[:1], atol=1e-5)
    nearest, _ = umap.nearest_neighbors_of(places, new, 5)
    right = np.mean([np.bincount(row, minlength=10).argmax() for row in labels[nearest]] == labels[700:])
    back = mapper.inverse_transform(new)
    error, plain = (float(np.sqrt(np.mean((x - data[700:]) ** 2))) for x in (back, data[:700].mean(axis=0)))
    kept = pickle.loads(pickle.dumps(mapper))
    assert (kept.transform(data) == mapper.transform(data)).all()
    assert right > 0.7 and error < 0.95 * plain, (right, error, plain)
    return f"{right:.2f} of new digits among their own, rms {16 * error:.1f} of 16"


def test_arguments():
    data = np.random.default_rng(1).normal(size=(60, 6)).astype(np.float32)
    mapper = umap.ParametricUMAP(n_epochs=5, n_neighbors=5)
    assert mapper.get_params()["n_neighbors"] == 5 and "n_neighbors=5" in repr(mapper) and "spread" not in repr(mapper)
    wanted = np.full((60, 2), np.nan)
    wanted[:30] = [5, -5]
    mapper.set_params(landmark_loss_weight=10.0, n_training_epochs=20, batch_size=60).fit(data, landmark_positions=wanted)
    assert np.abs(mapper.embedding_[:30].mean(axis=0) - [5, -5]).max() < 1.5
    distances = np.sqrt(((data[:, None] - data) ** 2).sum(2))
    known = umap.ParametricUMAP(metric="precomputed", n_epochs=5).fit(data, precomputed_distances=distances)
    assert known.transform(data[:3]).shape == (3, 2)
    for options, data_of in (({"encoder": torch.nn.Linear(6, 3)}, data), ({"dims": (2, 2)}, data), ({"metric": "precomputed"}, data)):
        try:
            umap.ParametricUMAP(n_epochs=5, **options).fit(data_of)
        except ValueError as error:
            assert re.search("encoder|dims|precomputed_distances", str(error)), error
        else:
            raise AssertionError(f"{options} is not refused")


def test_refusals():
    data = np.random.default_rng(1).random((60, 6), np.float32)
    mapper = umap.ParametricUMAP(n_epochs=5, n_neighbors=5).fit(data)
    sparse = scipy.sparse.csr_matrix(data)
    for words, call in [
        ("ParametricUMAP: maps of networks cannot be combined", lambda: mapper + mapper),
        ("X: rows of 4 numbers, but the network was trained with 6", lambda: mapper.transform(data[:, :4])),
        ("X: rows of 4 numbers, but the network was trained with 6", lambda: mapper.fit(data[:, :4])),
        ("n_components: 3, but the network was trained for 2",
         lambda: copy.copy(mapper).set_params(n_components=3).fit(data)),
        ("X: points of 3 numbers, but the map has 2", lambda: mapper.inverse_transform(np.zeros((4, 3)))),
        ("batch_size: 0 is less than 1", lambda: mapper.transform(data, batch_size=0)),
        ("batch_size: -5 is less than 1", lambda: umap.ParametricUMAP(batch_size=-5).fit(data)),
        ("n_training_epochs: -1 is less than 0", lambda: umap.ParametricUMAP(n_training_epochs=-1).fit(data)),
        ("n_epochs: [2, 5] is not a number", lambda: umap.ParametricUMAP(n_epochs=[2, 5]).fit(data)),
        ("encoder: fails for a row of the shape (6,)",
         lambda: umap.ParametricUMAP(n_epochs=5, encoder=torch.nn.Linear(4, 2)).fit(data)),
        ("X: sparse rows cannot be landmarks", lambda: mapper.add_landmarks(sparse)),
        ("sample_pct: 3 is not", lambda: mapper.add_landmarks(data, sample_pct=3)),
    ]:
        raises(ValueError, words, call, one_line=True)
    for none in (data[:0], [], sparse[:0]):
        assert mapper.transform(none).shape == (0, 2)
    assert mapper.fit(data).embedding_.shape == (60, 2)  # as before the refusals


def test_fits_with_landmarks():
    data = np.random.default_rng(1).random((60, 6), np.float32)
    mapper = umap.ParametricUMAP(n_epochs=5, n_neighbors=5).fit(data)
    mapper.add_landmarks(data, sample_pct=0.1)
    raises(ValueError, "y: 60 values for 60 rows and 6 landmarks", lambda: mapper.fit(data, np.zeros(60)))
    raises(ValueError, "X: sparse rows cannot be joined", lambda: mapper.fit(scipy.sparse.csr_matrix(data)))
    assert mapper.fit(data, np.zeros(66)).embedding_.shape == (66, 2)
    mapper.remove_landmarks()
    assert mapper.fit(data, np.zeros(60)).embedding_.shape == (60, 2)


def test_data_that_are_no_shares():
    data = np.random.default_rng(1).random((60, 6), np.float32)
    options = {"n_epochs": 20, "n_neighbors": 5, "parametric_reconstruction": True, "n_training_epochs": 5, "batch_size": 60}
    far = umap.ParametricUMAP(**options).fit(10 * data - 5)
    made = far.inverse_transform(far.embedding_)
    assert made.min() < 0, made.min()  # what the sigmoid of logits cannot be
    assert min(far._history["loss"]) > 0
    assert (pickle.loads(pickle.dumps(far)).inverse_transform(far.embedding_) == made).all()
    usual = umap.ParametricUMAP(**options).fit(data)
    made = usual.inverse_transform(usual.embedding_)
    assert 0 <= made.min() and made.max() <= 1
    before = usual.embedding_
    raises(ValueError, "X: numbers below 0 or above 1", lambda: usual.fit(data - 0.5))
    assert usual.embedding_ is before
    raises(ValueError, "method: 'nonsense'", lambda: usual.inverse_transform(before, method="nonsense"))


def test_example():
    done = python(os.path.join(ROOT, "examples", "umap_parametric.py"), "--epochs", 40, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("among their own") == 2
    return "; ".join(done.stdout.splitlines())


def test_umap_learn_with_napier():
    folder = os.environ.get("UMAP_LEARN_TESTS")
    if not folder:
        raise Skip("umap-learn's tests cannot be had: UMAP_LEARN_TESTS names no folder")
    try:
        import pytest  # noqa: F401
    except ImportError as error:
        raise Skip(f"umap-learn's tests cannot be run: {error}") from None
    file = pathlib.Path(folder).resolve() / "test_parametric_umap.py"
    path = os.pathsep.join([os.path.join(ROOT, "tests", "peers", "dropin"), os.environ.get("PYTHONPATH", "")])
    done = python("-m", "pytest", "-q", "-rf", "--tb=no", "--noconftest", "--disable-warnings", "-p", "parametric_plugin",
                  "-p", "no:cacheprovider", "--rootdir", str(file.parent), "--import-mode=importlib", str(file), PYTHONPATH=path)
    failed = set(re.findall(r"^FAILED \S*::(\S+)", done.stdout, re.M))
    passed = int((re.findall(r"(\d+) passed", done.stdout) or ["0"])[0])
    assert failed == set(KNOWN) and passed == 5, done.stdout[-2000:] + done.stderr[-2000:]
    return f"{passed} of {passed + len(failed)}"
