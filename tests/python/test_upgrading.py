"""A script as 0.1 had them runs unchanged, and a name that has changed warns once (docs/upgrading.md)."""

from conftest import run_python

SCRIPT = """
import numpy as np, napier, warnings
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert napier.softmax(x, axis=0).shape == x.shape
    assert (napier.fused_log_softmax(x) == napier.log_softmax(x)).all()
    assert napier.token_logprobs(x, [0, 1, 2, 0], entropy=True).entropy.shape == (4,)
    state = napier.SoftmaxState.from_bytes(napier.SoftmaxState("float32").update(x[0]).to_bytes())
    assert state.finish() == napier.logsumexp(x[0])
    model = napier.umap.fit(x, n_neighbors=3, n_epochs=5)
    assert napier.umap.Model.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()
    assert napier.umap.model_of(x, model.embedding, n_neighbors=3).lost == napier.umap.model_lost(model) == 0
    assert napier.Qwen3 is napier.CausalLM and napier.Qwen3 is napier.CausalLM
    from napier import Qwen3
print(*((w.category.__name__, str(w.message), w.filename) for w in warned), sep="\\n")
"""


def test_a_script_of_0_1():
    renamed = {
        "napier.umap.model_of": "napier.umap.model_create",
        "Model.lost": "Model.indistinct",
        "napier.umap.model_lost": "napier.umap.model_indistinct",
        "napier.Qwen3": "napier.CausalLM",
    }
    told = run_python("-c", SCRIPT).splitlines()
    assert told == [str(("DeprecationWarning", f"{old} is now {new}", "<string>")) for old, new in renamed.items()]
