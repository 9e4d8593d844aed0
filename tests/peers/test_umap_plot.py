"""napier.umap.plot beside umap.plot: names, arguments, defaults and themes as its source has them; where umap-learn[plot] is
installed, also the pixels and the diagnostics of the same map."""
import ast
import inspect
import pathlib

import numpy as np
import umap
from sklearn.datasets import load_digits

import napier
import napier.umap.plot as mine
from napier._umap import colours, diagnostics
from support import Skip

SOURCE = ast.parse((pathlib.Path(umap.__file__).parent / "plot.py").read_text(encoding="utf-8"))
FUNCTIONS = {node.name: node for node in SOURCE.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}


def their_plot():
    try:
        import umap.plot as theirs
    except ImportError:
        raise Skip("umap-learn[plot] is not installed") from None
    import matplotlib
    matplotlib.use("Agg")
    return theirs


def test_functions_and_arguments():
    assert len(FUNCTIONS) >= 6
    for name, node in FUNCTIONS.items():
        defaults = [ast.literal_eval(default) for default in node.args.defaults]
        names = [argument.arg for argument in node.args.args]
        wanted = [(n, d) for n, d in zip(names, [inspect.Parameter.empty] * (len(names) - len(defaults)) + defaults, strict=True)]
        have = [(p.name, p.default) for p in inspect.signature(getattr(mine, name)).parameters.values()]
        wanted = [(n, None if n == "color_key_cmap" else d) for n, d in wanted]  # Napier's colours of labels are its own
        assert have == wanted, name
    return f"{len(FUNCTIONS)} functions"


def test_themes():
    value = next(node.value for node in SOURCE.body
                 if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_themes")
    assert {name: theme._asdict() for name, theme in colours.THEMES.items()} == ast.literal_eval(value)


def test_diagnostics():
    data = load_digits().data[:200]
    mapper = umap.UMAP(random_state=1).fit(data)
    ours = napier.UMAP(random_state=1).fit(data)
    theirs = their_plot()
    for kind in ("local_dim", "neighborhood"):
        wanted = theirs.diagnostic(mapper, kind, return_diagnostics=True, plot_result=False)
        have = diagnostics.MEASURES[kind](mapper)
        assert np.abs(have - wanted).mean() < 0.01, kind  # neighbours at the same distance may differ
        assert diagnostics.MEASURES[kind](ours).shape == wanted.shape
    wanted = theirs.diagnostic(mapper, "pca", return_diagnostics=True, plot_result=False)
    assert np.allclose(diagnostics.pca(mapper), wanted, atol=1e-3)


def test_pixels_of_many_points():
    theirs = their_plot()
    import matplotlib.pyplot as plt
    places = np.random.default_rng(2).normal(size=(50_000, 2)).astype(np.float32) * 20
    mapper = type("Map", (), {"embedding_": places, "n_neighbors": 15, "min_dist": 0.1})
    shown = [np.asarray(module.points(mapper, theme="viridis", width=200, height=200).images[0].get_array()).astype(int).sum(axis=2)
             for module in (mine, theirs)]
    plt.close("all")
    # The frames differ by rounding, so the pictures are compared by how bright parts of them are.
    parts = [picture[:200, :200].reshape(10, 20, 10, 20).mean(axis=(1, 3)).ravel() for picture in shown]
    likeness = np.corrcoef(parts[0], parts[1])[0, 1]
    assert likeness > 0.97, likeness
    return f"correlation {likeness:.3f} of the brightness of 100 parts"
