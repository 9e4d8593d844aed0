"""Types of napier.umap.plot. Array: as in napier/_napier.pyi. Axes are matplotlib's."""

from os import PathLike
from typing import Any, Mapping, Optional, Sequence

__all__ = [
    "InteractiveMap",
    "connectivity",
    "diagnostic",
    "interactive",
    "nearest_neighbour_distribution",
    "output_file",
    "output_notebook",
    "points",
    "show",
]

Array = Any
Axes = Any
Cmap = Any

class InteractiveMap:
    width: int
    height: int
    def __init__(self, data: dict[str, Any], width: int, height: int) -> None: ...
    def to_html(self, title: Optional[str] = None) -> str: ...
    def save(self, path: str | PathLike[str], title: Optional[str] = None) -> None: ...

def points(
    umap_object: Any,
    points: Optional[Array] = None,
    labels: Optional[Array] = None,
    values: Optional[Array] = None,
    theme: Optional[str] = None,
    cmap: Cmap = "Blues",
    color_key: Optional[Mapping[Any, Any] | Sequence[Any]] = None,
    color_key_cmap: Optional[Cmap] = None,
    background: Any = "white",
    width: int = 800,
    height: int = 800,
    show_legend: bool = True,
    subset_points: Optional[Array] = None,
    ax: Optional[Axes] = None,
    alpha: Optional[float] = None,
) -> Axes: ...
def connectivity(
    umap_object: Any,
    edge_bundling: Optional[str] = None,
    edge_cmap: Cmap = "gray_r",
    show_points: bool = False,
    labels: Optional[Array] = None,
    values: Optional[Array] = None,
    theme: Optional[str] = None,
    cmap: Cmap = "Blues",
    color_key: Optional[Mapping[Any, Any] | Sequence[Any]] = None,
    color_key_cmap: Optional[Cmap] = None,
    background: Any = "white",
    width: int = 800,
    height: int = 800,
) -> Axes: ...
def diagnostic(
    umap_object: Any,
    diagnostic_type: str = "pca",
    nhood_size: int = 15,
    local_variance_threshold: float = 0.8,
    ax: Optional[Axes] = None,
    cmap: Cmap = "viridis",
    point_size: Optional[float] = None,
    background: Any = "white",
    width: int = 800,
    height: int = 800,
    return_diagnostics: bool = False,
    plot_result: bool = True,
) -> Any: ...
def nearest_neighbour_distribution(umap_object: Any, bins: int | Array = 25, ax: Optional[Axes] = None) -> Axes: ...
def interactive(
    umap_object: Any,
    labels: Optional[Array] = None,
    values: Optional[Array] = None,
    hover_data: Optional[Mapping[str, Array]] = None,
    tools: Optional[str | Sequence[Any]] = None,
    theme: Optional[str] = None,
    cmap: Cmap = "Blues",
    color_key: Optional[Mapping[Any, Any] | Sequence[Any]] = None,
    color_key_cmap: Optional[Cmap] = None,
    background: Any = "white",
    width: int = 800,
    height: int = 800,
    point_size: Optional[float] = None,
    subset_points: Optional[Array] = None,
    interactive_text_search: bool = False,
    interactive_text_search_columns: Optional[Sequence[str]] = None,
    interactive_text_search_alpha_contrast: float = 0.95,
    alpha: Optional[float] = None,
) -> InteractiveMap: ...
def output_notebook(*_: Any, **__: Any) -> None: ...
def output_file(filename: str | PathLike[str], title: Optional[str] = None, *_: Any, **__: Any) -> None: ...
def show(plot_to_show: Axes | InteractiveMap) -> None: ...
