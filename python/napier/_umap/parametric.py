"""ParametricUMAP: a network that places rows on a map, trained on the fuzzy set's edges with PyTorch; and its loss.

The neighbours and the fuzzy set are the library's, the same bits everywhere. Edges and samples are drawn from the seed.
The network's bits are PyTorch's: they may depend on its version, the machine and the number of threads."""

import inspect

import numpy as np

from . import stages
from .estimator import UMAP, _check_count, _seed

_STEPS_TO_REPORT = 10  # parts of a training epoch whose mean losses are kept, as in umap-learn
_NEAREST = 1e-3  # added to the square of a sample's distance, as napier.umap.loss does


def parametric_loss(source, target, negatives, a=1.5769434603, b=0.8950608780, repulsion_strength=1.0):
    """The loss of UMAP for a batch of edges, a scalar tensor with gradients: the mean over edges and samples of -log q(d)
    for an edge and -repulsion_strength log(1 - q(d)) for a sample, where q(d) = 1 / (1 + a d^2b).

    source, target: places of both ends of the edges [n, components], tensors, drawn in proportion to the edges' weights.
    negatives: places of samples for each source, [n, rate, components]. a, b: as find_ab_params returns them.

    Examples
    --------
    >>> import torch, napier
    >>> source, target = torch.zeros(4, 2, requires_grad=True), torch.ones(4, 2)
    >>> napier.umap.parametric_loss(source, target, negatives=torch.full((4, 5, 2), 9.0)).backward()
    >>> bool((source.grad < 0).all())  # a step against the gradient leads to the target
    True
    """
    import torch
    import torch.nn.functional as F

    near = (source - target).square().sum(-1).clamp(min=1e-12)  # no gradient where both ends are at one place
    far = (source.unsqueeze(-2) - negatives).square().sum(-1) + _NEAREST
    pull = torch.log1p(a * near**b)
    push = F.softplus(-np.log(a) - b * torch.log(far))  # log(1 + 1 / (a d^2b)) = -log(1 - q)
    return (pull.sum() + repulsion_strength * push.sum()) / (near.numel() + far.numel())


def _correlation(x, z):
    """The correlation of the distances between successive rows of x and of z."""

    def steps(rows):
        rows = rows.flatten(1)
        scored = ((rows - rows.mean()) / (rows.std() + 1e-12)).clamp(-10, 10)
        gaps = ((scored[1:] - scored[:-1]).square().sum(1) + 1e-12).sqrt()
        return (gaps - gaps.mean()) / (gaps.std(unbiased=False) + 1e-12)

    return (steps(x) * steps(z)).mean()


def _landmark_loss(target, places):
    return ((places - target).square().sum(1) + 1e-10).sqrt().mean()


def _network(inputs, outputs, shape=None):
    """Three layers of 100, as umap-learn's."""
    from torch import nn

    layers = [
        nn.Flatten(),
        nn.Linear(inputs, 100),
        nn.ReLU(),
        nn.Linear(100, 100),
        nn.ReLU(),
        nn.Linear(100, 100),
        nn.ReLU(),
        nn.Linear(100, outputs),
    ]
    return nn.Sequential(*layers, *([nn.Unflatten(1, shape)] if shape else []))


class ParametricUMAP(UMAP):
    """UMAP whose map is a network of PyTorch, so that new rows are placed by it, and with a decoder points of the map
    become data. Names of arguments are umap-learn's; networks are torch.nn.Module in place of Keras models.

    Parameters (the others are UMAP's)
    ----------
    batch_size : edges in a step; None is 1000, or as many as there are rows.
    dims : the shape of a row for the network, such as (1, 28, 28); None: flat rows.
    encoder, decoder : networks [n, *dims] -> [n, n_components] and back. None: three layers of 100.
    parametric_reconstruction : train the decoder too. parametric_reconstruction_loss_fcn : a function of
        (output, data); None is the cross-entropy of logits if the data of the first fit are all 0 to 1, else the mean
        squared error.
    parametric_reconstruction_loss_weight : its weight in the loss.
    autoencoder_loss : the encoder learns from the reconstruction too.
    reconstruction_validation : rows whose reconstruction loss is kept in _history["val_loss"].
    global_correlation_loss_weight : the weight of the correlation of distances in the batch and on the map.
    landmark_loss_fn, landmark_loss_weight : a function of (wanted, places), None: the mean distance; and its weight.
    optimizer : a function of the parameters that returns an optimizer of PyTorch. None: Adam(lr=1e-3), with gradients
        clipped to +-4.
    n_training_epochs : how often the edges are drawn, each n_epochs times its weight.
    device : of the networks, such as "cuda".

    A second fit goes on from the trained networks. n_epochs is a number, as maps of other epochs are not kept.

    Examples
    --------
    >>> import numpy as np, napier, torch
    >>> data = np.random.default_rng(0).random((100, 5), np.float32)
    >>> mapper = napier.umap.ParametricUMAP(n_neighbors=10, n_epochs=10, parametric_reconstruction=True)
    >>> mapper.fit_transform(data).shape, mapper.transform(data[:3]).shape
    ((100, 2), (3, 2))
    >>> mapper.inverse_transform(mapper.embedding_[:3]).shape
    (3, 5)
    >>> mapper.add_landmarks(data, sample_pct=0.1)  # they stay near their places when it is trained with more rows
    >>> mapper.fit(data / 2).embedding_.shape
    (110, 2)
    >>> mapper.remove_landmarks()
    """

    __module__ = "napier.umap"
    _own_layout = True

    def __init__(
        self,
        batch_size=None,
        dims=None,
        encoder=None,
        decoder=None,
        parametric_reconstruction=False,
        parametric_reconstruction_loss_fcn=None,
        parametric_reconstruction_loss_weight=1.0,
        autoencoder_loss=False,
        reconstruction_validation=None,
        global_correlation_loss_weight=0.0,
        landmark_loss_fn=None,
        landmark_loss_weight=1.0,
        optimizer=None,
        n_training_epochs=1,
        device="cpu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.batch_size, self.dims, self.encoder, self.decoder = batch_size, dims, encoder, decoder
        self.parametric_reconstruction = parametric_reconstruction
        self.parametric_reconstruction_loss_fcn = parametric_reconstruction_loss_fcn
        self.parametric_reconstruction_loss_weight = parametric_reconstruction_loss_weight
        self.autoencoder_loss, self.reconstruction_validation = autoencoder_loss, reconstruction_validation
        self.global_correlation_loss_weight = global_correlation_loss_weight
        self.landmark_loss_fn, self.landmark_loss_weight = landmark_loss_fn, landmark_loss_weight
        self.optimizer, self.n_training_epochs, self.device = optimizer, n_training_epochs, device

    @property
    def parametric_model(self):
        """What is trained; None before a fit."""
        return self.__dict__.get("_trained")

    # ---- Fitting

    def fit(self, X, y=None, precomputed_distances=None, landmark_positions=None, ensure_all_finite=True):
        """Trains the network on the rows of X [n, features]. precomputed_distances [n, n]: for metric 'precomputed'.
        landmark_positions [n, n_components]: where rows should be; NaN for those that may be anywhere."""
        self._check_parameters()
        if self.parametric_model is not None:
            self._check_goes_on(X)
        if self.__dict__.get("prev_epoch_X") is not None and landmark_positions is None:
            X, landmark_positions = self._with_landmarks(X, y)
        if landmark_positions is not None:
            landmark_positions = self._landmark_positions(landmark_positions, np.shape(X)[0])
        if self._is_precomputed() and precomputed_distances is None:
            raise ValueError("precomputed_distances: needed with the metric 'precomputed'")
        self._landmarks, self._network_rows = landmark_positions, X if self._is_precomputed() else None
        return super().fit(precomputed_distances if self._is_precomputed() else X, y, ensure_all_finite)

    def _check_parameters(self):
        super()._check_parameters()
        if self._keeps_maps():
            raise ValueError(f"n_epochs: {self.n_epochs!r} is not a number; a ParametricUMAP keeps no maps of other epochs")
        if self.batch_size is not None:
            _check_count("batch_size", self.batch_size, 1)
        _check_count("n_training_epochs", self.n_training_epochs, 0)
        if self.transform_mode == "graph":
            raise ValueError("transform_mode: 'graph' trains no network")

    def _check_goes_on(self, X):
        """Can the trained networks be trained with these rows?"""
        if self.n_components != self.embedding_.shape[1]:
            raise ValueError(
                f"n_components: {self.n_components}, but the network was trained for {self.embedding_.shape[1]}; make a new ParametricUMAP"
            )
        width = _width(X)
        if width != self._n_inputs:
            raise ValueError(
                f"X: rows of {width} numbers, but the network was trained with {self._n_inputs}; make a new ParametricUMAP for other data"
            )
        usual = self.parametric_reconstruction and self.parametric_reconstruction_loss_fcn is None
        if usual and self.parametric_model.is_logits and not _are_shares(X):
            raise ValueError(
                "X: numbers below 0 or above 1, but the decoder was trained for 0 to 1, by the cross-entropy; "
                "scale them to 0 to 1, or make a new ParametricUMAP"
            )

    def _with_landmarks(self, X, y):
        """X with the landmarks behind it, and where the rows should be."""
        kept = self.prev_epoch_X
        if stages._is_sparse(X):
            raise ValueError("X: sparse rows cannot be joined with landmarks; give X.toarray(), or call remove_landmarks()")
        if y is not None and len(y) != len(X) + len(kept):
            raise ValueError(
                f"y: {len(y)} values for {len(X)} rows and {len(kept)} landmarks, which come last; give one for "
                "each landmark too, or call remove_landmarks()"
            )
        free = np.full((len(X), self.n_components), np.nan, np.float32)
        return np.concatenate([X, kept]), np.concatenate([free, self.transform(kept)])

    def _landmark_positions(self, given, n):
        places = np.asarray(given, np.float32)
        if places.shape != (n, self.n_components):
            raise ValueError(f"landmark_positions: expected the shape ({n}, {self.n_components}), got {places.shape}")
        if self.unique:
            raise ValueError("landmark_positions: not with unique")
        return places

    def fit_transform(self, X, y=None, precomputed_distances=None, landmark_positions=None, ensure_all_finite=True):
        """Trains the network and returns the map, float32 [n, n_components]."""
        self.fit(X, y, precomputed_distances, landmark_positions, ensure_all_finite)
        return self.embedding_

    def _lay_out(self, X, start, seed, watch):
        """In place of the layout: trains the network. The map is what it returns."""
        rows = X if self._network_rows is None else np.asarray(self._network_rows, np.float32)
        training = _Training(self, rows, seed)
        history = training.run(watch["progress"])
        self._trained, self._n_inputs = training.model, rows.shape[1]
        self.encoder, self.decoder = training.model.encoder, training.model.decoder
        known = self.__dict__.setdefault("_history", {})
        for name, values in history.items():
            known[name] = known.get(name, []) + values
        self._network_rows = self._landmarks = None
        return [self._encode(rows)]

    def _shape(self, features):
        return tuple(self.dims) if self.dims is not None else (features,)

    # ---- Using the network

    def _encode(self, X, batch_size=None):
        import torch

        if X.shape[0] == 0:
            return np.empty((0, self.n_components), np.float32)
        size = batch_size or max(self.batch_size or 0, 1000)
        places = [
            _run(self.encoder, _tensor(X, part, self._shape(X.shape[1]), self.device))
            for part in (slice(i, i + size) for i in range(0, X.shape[0], size))
        ]
        return torch.cat(places).numpy().astype(np.float32)

    def transform(self, X, batch_size=None):
        """Where the network places new rows, float32 [rows, n_components]."""
        self._check_fitted("transform")
        if batch_size is not None:
            _check_count("batch_size", batch_size, 1)
        return self._encode(self._rows_for_network(X), batch_size)

    def _rows_for_network(self, X):
        width = _width(X)
        if width != self._n_inputs and np.shape(X) != (0,):
            raise ValueError(f"X: rows of {width} numbers, but the network was trained with {self._n_inputs}")
        return X.tocsr() if stages._is_sparse(X) else np.asarray(X).reshape(np.shape(X)[0], self._n_inputs)

    def inverse_transform(self, X, method="mean"):
        """Data for points of the map: with parametric_reconstruction by the decoder, [rows, *dims], else as UMAP does."""
        self._check_fitted("inverse_transform")
        if method not in ("mean", "gradient"):
            raise ValueError(f"method: {method!r} is not 'mean' or 'gradient'")
        points = stages._array(X, "X", np.float32, 2)
        if points.shape[1] != self.n_components:
            raise ValueError(f"X: points of {points.shape[1]} numbers, but the map has {self.n_components} dimensions")
        if not self.parametric_reconstruction:
            return super().inverse_transform(points, method)
        import torch

        made = _run(self.decoder, torch.as_tensor(points, device=self.device))
        is_logits = not self.parametric_reconstruction_loss_fcn and self.parametric_model.is_logits
        return (torch.sigmoid(made) if is_logits else made).numpy()

    def _combined(self, other, operation, n_neighbors):
        if not isinstance(other, UMAP):
            return NotImplemented
        raise ValueError("ParametricUMAP: maps of networks cannot be combined; combine their graph_ with napier.umap.combine")

    def update(self, X, ensure_all_finite=True):
        raise ValueError("update: call fit with the new rows; it goes on from the trained network")

    def add_landmarks(self, X, sample_pct=0.01, sample_mode="uniform", landmark_loss_weight=0.01, idx=None, reset_optimizer=True):
        """Rows of X that the next fit keeps near their places: a share sample_pct of them, or those at idx with
        sample_mode 'predetermined'."""
        self._check_fitted("add_landmarks")
        if stages._is_sparse(X):
            raise ValueError("X: sparse rows cannot be landmarks; give X.toarray()")
        if not 0 <= sample_pct <= 1:
            raise ValueError(f"sample_pct: {sample_pct!r} is not a share from 0 to 1")
        X = self._rows_for_network(X)
        if sample_mode == "uniform":
            draw = np.random.Generator(np.random.Philox(_seed(self.random_state, "random_state")))
            idx = np.sort(draw.choice(len(X), int(len(X) * sample_pct), replace=False))
        elif sample_mode != "predetermined" or idx is None:
            raise ValueError(f"sample_mode: {sample_mode!r} is not 'uniform', or 'predetermined' with idx")
        self.prev_epoch_idx, self.prev_epoch_X = list(idx), X[idx]
        self.landmark_loss_weight = self.parametric_model.landmark_loss_weight = landmark_loss_weight
        if reset_optimizer:
            self.parametric_model.optimizer = None

    def remove_landmarks(self):
        self.prev_epoch_X = None

    def __getstate__(self):
        state = self.__dict__.copy()
        if state.get("_trained") is not None:
            state["_trained"] = state["_trained"].without_optimizer()
        return state


def _signature():
    """All parameters, as scikit-learn reads them from __init__."""
    own = [p for p in inspect.signature(ParametricUMAP.__init__).parameters.values() if p.name != "kwargs"]
    others = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in inspect.signature(UMAP.__init__).parameters.values()]
    return inspect.Signature(own + others[1:])


ParametricUMAP.__init__.__signature__ = _signature()


def _width(X):
    """How many numbers a row has; rows may have several dimensions."""
    return int(np.prod(X.shape[1:] if hasattr(X, "shape") else np.shape(X)[1:]))


def _run(network, x):
    import torch

    network.eval()
    with torch.no_grad():
        return network(x).cpu()


def _tensor(X, rows, shape, device):
    import torch

    part = X[rows]
    part = part.toarray() if stages._is_sparse(part) else np.asarray(part)
    return torch.as_tensor(part.astype(np.float32).reshape(-1, *shape), device=device)


# ---- Training -------------------------------------------------------------------------------------------------------


class _Trained:
    """The networks, and the optimizer that trains them."""

    def __init__(self, encoder, decoder, optimizer, landmark_loss_weight, is_logits=True):
        self.encoder, self.decoder, self.optimizer = encoder, decoder, optimizer
        self.landmark_loss_weight = landmark_loss_weight
        self.is_logits = is_logits  # is the decoder trained by the cross-entropy, so that it returns logits?

    __module__ = "napier.umap"

    def __reduce__(self):
        return _trained, (self.encoder, self.decoder, self.landmark_loss_weight, self.is_logits)

    def without_optimizer(self):
        return _Trained(self.encoder, self.decoder, None, self.landmark_loss_weight, self.is_logits)


def _trained(encoder, decoder, landmark_loss_weight, is_logits=True):
    return _Trained(encoder, decoder, None, landmark_loss_weight, is_logits)


def _are_shares(rows):
    """Are all numbers 0 to 1, so that the cross-entropy is a loss?"""
    values = np.asarray(rows.data if stages._is_sparse(rows) else rows)
    return values.dtype.kind not in "fi" or not ((values < 0) | (values > 1)).any()


class _Training:
    """Draws edges by their weights, and takes steps of the optimizer."""

    def __init__(self, mapper, rows, seed):
        self.mapper, self.rows, self.shape = mapper, rows, mapper._shape(rows.shape[1])
        if int(np.prod(self.shape)) != rows.shape[1]:
            raise ValueError(f"dims: {self.shape} is not the shape of {rows.shape[1]} features")
        self.draw = np.random.Generator(np.random.Philox(seed))
        self._take_edges(mapper._graph)
        self.model = self._model(seed)

    def _take_edges(self, graph):
        n_epochs = max(self.mapper._epochs(graph.shape[0]), 1)
        rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
        times = np.floor(n_epochs * graph.data.astype(np.float64))
        times[graph.data < graph.data.max(initial=0) / n_epochs] = 0
        self.ends = np.stack([rows, graph.indices])[:, times > 0]
        self.until = np.cumsum(times[times > 0])
        n = graph.shape[0]
        self.batch = self.mapper.batch_size or int(min(max(n, 1), 1000))
        total = self.until[-1] if len(self.until) else 0
        self.steps = max(int(total / self.batch / _STEPS_TO_REPORT), 1) if total else 0

    def _model(self, seed):
        import torch

        mapper, features = self.mapper, int(np.prod(self.shape))
        if mapper.parametric_model is not None:
            return mapper.parametric_model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            encoder = mapper.encoder if mapper.encoder is not None else _network(features, mapper.n_components)
            decoder = mapper.decoder
            if decoder is None and mapper.parametric_reconstruction:
                decoder = _network(mapper.n_components, features, self.shape)
        encoder.to(mapper.device)
        self._check_encoder(encoder)
        if decoder is not None:
            decoder.to(mapper.device)
        return _Trained(encoder, decoder, None, mapper.landmark_loss_weight, _are_shares(self.rows))

    def _check_encoder(self, encoder):
        mapper = self.mapper
        try:
            probe = _run(encoder, _tensor(self.rows, slice(0, 1), self.shape, mapper.device))
        except RuntimeError as error:
            raise ValueError(f"encoder: fails for a row of the shape {self.shape}: {error}") from error
        if tuple(probe.shape) != (1, mapper.n_components):
            raise ValueError(f"encoder: returns the shape {tuple(probe.shape)} for one row, not (1, {mapper.n_components})")

    def _optimizer(self):
        import torch

        model = self.model
        if model.optimizer is None:
            parameters = [p for part in (model.encoder, model.decoder) if part is not None for p in part.parameters()]
            make = self.mapper.optimizer or (lambda found: torch.optim.Adam(found, lr=1e-3))
            model.optimizer = make(parameters)
        return model.optimizer

    def run(self, progress):
        """Trains; returns the mean losses of each part of the training epochs."""
        history: dict[str, list] = {"loss": []}
        parts = _STEPS_TO_REPORT * self.mapper.n_training_epochs if self.steps else 0
        for part in range(parts):
            for network in (self.model.encoder, self.model.decoder):
                if network is not None:
                    network.train()
            losses = [self._step() for _ in range(self.steps)]
            history["loss"].append(float(np.mean(losses)))
            if self.mapper.parametric_reconstruction and self.mapper.reconstruction_validation is not None:
                history.setdefault("val_loss", []).append(self._validate())
            if progress is not None and progress("training", (part + 1) / parts):
                raise RuntimeError("training: cancelled")
        return history

    def _step(self):
        import torch

        optimizer = self._optimizer()
        optimizer.zero_grad()
        loss = self._loss()
        loss.backward()
        if self.mapper.optimizer is None:
            torch.nn.utils.clip_grad_value_([p for g in optimizer.param_groups for p in g["params"]], 4.0)
        optimizer.step()
        return float(loss.detach())

    def _loss(self):
        import torch

        mapper = self.mapper
        edges = np.searchsorted(self.until, self.draw.random(self.batch) * self.until[-1], side="right")
        to, source = self.ends[:, np.minimum(edges, len(self.until) - 1)]
        data = _tensor(self.rows, to, self.shape, mapper.device)
        places = self.model.encoder(data)
        others = self.model.encoder(_tensor(self.rows, source, self.shape, mapper.device))
        drawn = self.draw.integers(0, self.batch, size=(self.batch, max(int(mapper.negative_sample_rate), 0)))
        negatives = others[torch.as_tensor(drawn, device=mapper.device)]
        loss = parametric_loss(places, others, negatives, mapper._a, mapper._b, mapper.repulsion_strength)
        if mapper.global_correlation_loss_weight > 0:
            loss = loss - mapper.global_correlation_loss_weight * _correlation(data, places)
        if mapper.parametric_reconstruction:
            seen = places if mapper.autoencoder_loss else places.detach()
            loss = loss + mapper.parametric_reconstruction_loss_weight * self._reconstruction(seen, data)
        if mapper._landmarks is not None:
            loss = loss + self._away_from_landmarks(places, mapper._landmarks[to])
        return loss

    def _reconstruction(self, places, data):
        import torch.nn.functional as F

        usual = F.binary_cross_entropy_with_logits if self.model.is_logits else F.mse_loss
        measure = self.mapper.parametric_reconstruction_loss_fcn or usual
        return measure(self.model.decoder(places), data)

    def _away_from_landmarks(self, places, wanted):
        import torch

        here = ~np.isnan(wanted).any(axis=1)
        if not here.any():
            return 0.0
        measure = self.mapper.landmark_loss_fn or _landmark_loss
        kept = torch.as_tensor(here, device=places.device)
        return self.model.landmark_loss_weight * measure(torch.as_tensor(wanted[here], device=places.device), places[kept])

    def _validate(self):
        import torch

        rows = np.asarray(self.mapper.reconstruction_validation)
        data = _tensor(rows.reshape(len(rows), -1), slice(None), self.shape, self.mapper.device)
        for network in (self.model.encoder, self.model.decoder):
            network.eval()
        with torch.no_grad():
            return float(self._reconstruction(self.model.encoder(data), data))
