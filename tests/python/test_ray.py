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
            rows[key] = {
                name: bits(np.asarray(column[i])) if name not in ("prompt", "text") else str(column[i]) for name, column in result.items()
            }
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


@have
def test_judge(directory):
    """The questions are those of `napier judge`, and a row does not depend on its batch."""
    criteria = ["It is right.", {"criterion": "It is {prompt}.", "weight": -0.5}]
    batch = {**batch_of(range(4)), "response": np.array(["one", "{criterion}", "", "four"], object)}
    model = napier.CausalLM(directory)
    questions = [
        f"Question:\n{p}\n\nAnswer:\n{r}\n\nCriterion: {c}\nDoes the answer meet the criterion? Reply with Yes or No.\n"
        for p, r in zip(batch["prompt"], batch["response"])
        for c in ("It is right.", "It is {prompt}.")
    ]
    chat = [model.encode(napier.Tokenizer.chat([{"role": "user", "content": q}], disable_thinking=True)) for q in questions]
    for prompts, options in ((chat, {}), (questions, {"chat": None})):
        scores, rewards, _ = model.judge(prompts, ["Yes", "No"], [1, 0], weights=[1, -0.5], criteria=2)
        judge = napier.ray.Judge(directory, criteria, **options)
        found = judge(batch)
        assert bits(np.stack(list(found["scores"]))) == bits(scores) and bits(found["reward"]) == bits(rewards)
        alone = judge({name: column[2:3] for name, column in batch.items()})
        assert bits(alone["scores"][0]) == bits(scores[2]) and found["prompt"][3] == PROMPTS[3]
    other = napier.ray.Judge(directory, ["a"], verdicts={" x": 2, "y": 2}, template="{criterion}{nothing}", chat=None)(batch)
    np.testing.assert_allclose(other["reward"], 2, rtol=1e-6)
    none = judge({name: column[:0] for name, column in batch.items()})
    assert len(none["scores"]) == len(none["reward"]) == 0
    refuses(lambda: napier.ray.Judge(directory, []), ValueError, "criteria")
    refuses(lambda: napier.ray.Judge(directory, "right"), ValueError, "criteria")
    refuses(lambda: napier.ray.Judge(directory, [{"weight": 1}]), ValueError, r"criteria\[0\]")
    refuses(lambda: judge({**batch, "scores": [0]}), ValueError, "'scores'")
    refuses(lambda: judge({**batch, "response": np.zeros((4, 2), int)}), TypeError, "response: expected texts")
