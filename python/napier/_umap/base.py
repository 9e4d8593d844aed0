"""The parts of scikit-learn that napier.UMAP uses, for machines where it is not installed or older than 1.6."""

import inspect

import numpy as np

from . import stages


class NotFittedError(ValueError, AttributeError):
    """Raised like scikit-learn's exception of this name."""


class TransformerMixin:
    pass


class ClassNamePrefixFeaturesOutMixin:
    def get_feature_names_out(self, input_features=None):
        """The names of the map's columns: umap0, umap1 and so on."""
        name = type(self).__name__.lower()
        return np.asarray([f"{name}{i}" for i in range(self._n_features_out)], dtype=object)


class BaseEstimator:
    """The parameters of an estimator are the arguments of its __init__."""

    @classmethod
    def _names(cls):
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep=True):
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params):
        for name, value in params.items():
            if name not in self._names():
                raise ValueError(f"Invalid parameter {name!r} for estimator {self!r}.")
            setattr(self, name, value)
        return self

    def __repr__(self):
        defaults = inspect.signature(type(self).__init__).parameters
        given = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not defaults[name].default and repr(value) != repr(defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(given)})"


def validate_data(estimator, X, accept_sparse=None, dtype=None, ensure_all_finite=True, reset=True):
    """Returns X as an array or a sparse matrix. Checks that it is finite and has the fitted number of features."""
    if stages._is_sparse(X):
        X = stages._csr(X, "X")
    else:
        X = stages._samples(X)
    values = X.data if stages._is_sparse(X) else X
    allowed = np.isnan(values) if ensure_all_finite == "allow-nan" else not ensure_all_finite
    if not (np.isfinite(values) | allowed).all():
        raise ValueError("Input X contains NaN or infinity.")
    if X.shape[0] == 0:
        raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
    if reset:
        estimator.n_features_in_ = X.shape[1]
    elif X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} features as input"
        )
    return X
