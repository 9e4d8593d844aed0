"""Uses of napier as a type checker sees them. A line with an ignored error must be one, or the checker complains of the comment: mypy
--strict and pyright with reportUnnecessaryTypeIgnoreComment."""
from typing import Any, assert_type

import numpy as np

import napier
import napier.dask
import napier.lm_eval
import napier.ray
import napier.rl
import napier.torch
import napier.torch.distributed
import napier.trl
import napier.umap

Floats = np.ndarray[Any, np.dtype[np.float32]]


def classes(reducer: napier.UMAP, model: napier.CausalLM, tokenizer: napier.Tokenizer, x: Any) -> None:
    assert_type(napier.UMAP(n_neighbors=3, metric="cosine").fit(x), napier.UMAP)
    assert_type(napier.UMAP().fit(x).embedding_, Floats)
    assert_type(napier.UMAP(n_epochs=[5, 10]).fit(x).embedding_list_, list[Floats])
    assert_type((reducer.rad_orig_, reducer.rad_emb_), tuple[Floats, Floats])
    assert_type(reducer.model_.embedding, Floats)
    assert_type(reducer.n_features_in_, int)
    assert_type(napier.umap.AlignedUMAP().fit([x, x]).embeddings_, list[Floats])
    assert_type(napier.umap.nearest_neighbors(x)[1], Floats)
    assert_type(napier.umap.UMAP(), napier.UMAP)
    assert_type(napier.Qwen3.from_pretrained("folder"), napier.CausalLM)
    assert_type(model.encode("a"), list[int])
    assert_type(tokenizer.apply_chat_template([{"role": "user", "content": "a"}], continue_final_message=True), str)
    assert_type(napier.SoftmaxState("float64").update(x).merge(napier.SoftmaxState()), napier.SoftmaxState)
    assert_type(napier.token_logprobs(x, [1], entropy=True), napier.rl.TokenLogprobs)
    assert_type(napier.softmax(x) is None, bool)


def mistakes(x: Any, model: napier.CausalLM) -> None:
    napier.UMAP(n_neighbours=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    napier.UMAP(n_neighbors="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    napier.UMAP().fit(x).embeding_  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    napier.Umap()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    napier.Qwen3.from_pretrained("folder", compte="bfloat16")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    model.generat(["a"])  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    model.generate(["a"], max_tokens="7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    napier.softmax(x, temperatur=0.5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    napier.softmax(x, masked_rows="none")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    napier.torch.softmax(x, dims=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    napier.trl.grpo_loss(x, x, x, epsilon_low=0.1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    napier.trl.grpo_loss(x, x, x, beta="0.1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    napier.umap.fit(x, n_neighbours=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    napier.torch.distributed.cross_entropy(x, x, reduction="max")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def trains(logps: Any, advantages: Any, mask: Any, images: "np.ndarray[Any, Any]") -> float:
    loss, metrics = napier.trl.grpo_loss(logps, advantages, mask, loss_type="dapo", beta=0.04)
    loss.backward()
    assert_type(list(metrics), list[str])
    return float(loss.item())
