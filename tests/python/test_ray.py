"""napier.ray: its actors without Ray, which calls them with dicts of arrays. tests/peers/test_scale_ray.py has Ray itself."""
import numpy as np

import napier
import napier.ray
from conftest import bits, refuses
from test_model import directory, have  # noqa: F401: a fixture

PROMPTS = ["hello", "Hi there", "2 + 2 =", "a", "hello world"]


def batch_of(rows):
    return {"number": np.array(rows), "prompt": np.array([PROMPTS[i] for i in rows], object)}


def rows_of(results):
    """The rows of some batches, by the number of their prompt and the sample; lists as bytes."""
    rows = {}
    for result in results:
        for i in range(len(result["prompt"])):
            key = int(result["number"][i]), int(result.get("sample", np.zeros(len(result["prompt"])))[i])
            assert key not in rows
            rows[key] = {name: bits(np.asarray(column[i])) if name not in ("prompt", "text") else str(column[i])
                         for name, column in result.items()}
    return rows


@have
def test_samples_do_not_depend_on_batches(directory):  # noqa: F811
    make = napier.ray.Generate(directory, samples=3, max_tokens=7, seed=5, top_k=50)
    together = make(batch_of(range(5)))
    parts = rows_of(make(batch_of(rows)) for rows in ([3], [], [4, 0], [2, 1]))
    assert rows_of([together]) == parts
    want = napier.CausalLM(directory).generate(PROMPTS, samples=3, max_tokens=7, seed=5, top_k=50, texts=True)
    assert np.concatenate(together["token_ids"]).tolist() == want.token_ids.tolist()
    assert bits(np.concatenate(together["plain_logprobs"])) == bits(want.plain_logprobs)
    assert together["text"].tolist() == want.texts and together["stopped"].tolist() == want.stopped.tolist()
    assert together["prompt"].tolist() == [p for p in PROMPTS for _ in range(3)]


@have
def test_ids_and_greedy(directory):  # noqa: F811
    ids = {"ids": np.array([[3, 4, 5], [6, 7, 8]])}
    greedy = napier.ray.Generate(directory, prompt="ids", temperature=0, max_tokens=4)
    assert np.array_equal(greedy(ids)["token_ids"][1], greedy({"ids": ids["ids"][1:]})["token_ids"][0])


@have
def test_scores(directory):  # noqa: F811
    batch = {**batch_of(range(5)), "response": np.array([" one", " two", "", " four", " five!"], object)}
    score = napier.ray.Logprobs(directory)
    found = score(batch)
    want = napier.CausalLM(directory).score(PROMPTS, batch["response"].tolist())
    assert bits(np.concatenate(found["logprobs"])) == bits(want.logprobs)
    assert bits(np.concatenate(found["entropies"])) == bits(want.entropy)
    assert found["sum"][2] == 0 and found["is_greedy"][2] and len(found["token_ids"][2]) == 0
    parts = [score({name: column[at] for name, column in batch.items()}) for at in (slice(3, 5), slice(0, 3))]
    assert rows_of([found]) == rows_of(parts)


@have
def test_refusals(directory):  # noqa: F811
    refuses(lambda: napier.ray.Generate(directory, numbers=[1]), TypeError, "numbers")
    refuses(lambda: napier.ray.Logprobs(directory, top_k=1), TypeError, "top_k")
    texts = np.array(["a"], object)
    refuses(lambda: napier.ray.Generate(directory)({"prompt": texts}), ValueError, "'number'")
    refuses(lambda: napier.ray.Generate(directory)({"text": texts}), ValueError, "'prompt'")
    refuses(lambda: napier.ray.Generate(directory)({"number": np.array([0.5]), "prompt": texts}), ValueError, "not integers")
    refuses(lambda: napier.ray.Generate(directory)({**batch_of([0]), "text": texts}), ValueError, "'text'")
    refuses(lambda: napier.ray.Generate(directory)({**batch_of([0]), "sample": [0]}), ValueError, "'sample'")
    refuses(lambda: napier.ray.Logprobs(directory)({**batch_of([0]), "response": texts, "sum": [0]}), ValueError, "'sum'")
