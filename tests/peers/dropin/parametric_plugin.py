"""A plug-in of pytest for umap-learn's tests of its ParametricUMAP: napier.umap.ParametricUMAP in the place of umap-learn's.
umap-learn's needs TensorFlow, which the test file asks for by importing it; Napier's needs PyTorch.
"""
import importlib.machinery
import sys
import types

import torch._dynamo  # noqa: F401 - before there is a TensorFlow

import napier.umap

for name in ("tensorflow", "umap", "umap.parametric_umap"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
sys.modules["umap.parametric_umap"].ParametricUMAP = napier.umap.ParametricUMAP
sys.modules["umap.parametric_umap"].load_ParametricUMAP = None
