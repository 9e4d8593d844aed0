"""napier.audit: each planted fault is named, healthy numbers are not, and bad input is refused by line and key."""

import json
import subprocess
import sys

import audit_faults
import docstrings
import numpy as np
import pytest
from conftest import refuses

import napier
from napier import _napier

pytestmark = pytest.mark.skipif(not _napier._has_model, reason="this build has no model")
RESPONSES, TOKENS = 16, 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("audit")
    docstrings.models(place)
    config = place / "Qwen3-0.6B" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "bos_token_id": audit_faults.BOS}))
    return place / "Qwen3-0.6B"


@pytest.fixture(scope="module")
def model(folder):
    return napier.CausalLM(folder)


def sampled(model, fault, seed=3):
    """Prompts and responses drawn as the fault's parameters say."""
    rng = np.random.default_rng(seed)
    prompts = [list(fault.beginning) + rng.integers(5, 270, rng.integers(*fault.lengths)).tolist() for _ in range(RESPONSES)]
    options = {k: v for k, v in fault.parameters.items() if k != "logit_bias"}
    made = model.generate(prompts, max_tokens=TOKENS, stop=[], seed=seed, **options)
    return [(p, made.token_ids[made.offsets[i] : made.offsets[i + 1]].tolist()) for i, p in enumerate(prompts)]


def lines(model, fault):
    def engine(prompt, ids):
        return model.forward(list(prompt) + list(ids))

    return [audit_faults.line(fault, engine, p, ids) for p, ids in sampled(model, fault)]


def causes(report):
    return [f.cause for f in report.findings["engine"] if f.fault]


@pytest.mark.parametrize("name", audit_faults.FAULTS)
def test_a_planted_fault_is_named(model, name):
    fault = audit_faults.FAULTS[name]
    report = napier.audit(lines(model, fault), model)
    assert fault.causes[0] in causes(report) and set(causes(report)) <= set(fault.causes)
    assert not report.ok and all(f.mend and f.says for f in report.findings["engine"])


@pytest.mark.parametrize("pair", audit_faults.PAIRS, ids=" + ".join)
def test_two_faults_are_named(model, pair):
    fault = audit_faults.both(*pair)
    found = causes(napier.audit(lines(model, fault), model))
    assert all(set(some) & set(found) for some in fault.causes)
    assert set(found) <= {*fault.causes[0], *fault.causes[1], "fill"}  # a token outside the kept set has minus infinity


@pytest.mark.parametrize("name", audit_faults.REPORTS)
def test_a_fault_that_was_reported_is_named(model, name):
    fault, words = audit_faults.REPORTS[name]
    report = napier.audit(lines(model, fault), model)
    assert set(causes(report)) - {"fill"} <= set(fault.causes) and fault.causes[0] in causes(report) and words in report.text()


PLAIN = audit_faults.Fault((), {}, audit_faults.plain)


@pytest.mark.parametrize("noise", [0, 1e-6, 3e-3])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_healthy_numbers_have_no_cause(model, noise, temperature):
    rows = lines(model, PLAIN._replace(parameters={"temperature": temperature}))
    rng = np.random.default_rng(0)
    for row in rows:
        x = np.array(row["logprobs"]["engine"])
        row["logprobs"]["engine"] = (x + noise * rng.standard_normal(x.size) * np.minimum(np.abs(x), 1)).tolist()
    report = napier.audit(rows, model)
    assert report.ok and causes(report) == [] and report.draws is None, report.text()


def test_weights_of_another_checkpoint_are_recognised(model, folder, tmp_path):
    docstrings.models(tmp_path)
    other = tmp_path / "Qwen3-0.6B"
    for path in folder.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    data = bytearray((other / "model.safetensors").read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    weights = np.frombuffer(bytes(data[start:]), np.float32)
    data[start:] = (weights * np.where(np.arange(weights.size) % 7 == 0, 1.1, 1.0)).astype(np.float32).tobytes()
    (other / "model.safetensors").write_bytes(data)
    rows = lines(napier.CausalLM(other), PLAIN)
    assert causes(napier.audit(rows, model)) == ["unexplained"]
    assert causes(napier.audit(rows, model, others=[other])) == ["weights"]


def test_another_rotary_base_is_recognised(model, folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "rope_theta": 1000000.0}))
    report = napier.audit(lines(napier.CausalLM(tmp_path), PLAIN), model)
    assert causes(report) == ["positions"] and "1e+06" in report.text()


def test_a_bias_that_nobody_declared(model):
    rows, rng = [], np.random.default_rng(4)
    for _ in range(RESPONSES):
        prompt, ids = rng.integers(5, 270, 9).tolist(), rng.integers(5, 35, TOKENS).tolist()
        z = model.forward(prompt + ids)[8:-1]
        z[:, [7, 9]] += (2.0, -3.0)
        rows.append({"prompt_ids": prompt, "response_ids": ids, "logprobs": audit_faults.pick(z, ids).tolist()})
    report = napier.audit(rows, model)
    assert causes(report) == ["bias"] and "id 7 by" in report.text() and "id 9 by" in report.text()


def test_text_that_was_tokenised_again(model):
    """Ids that another tokenisation of their text has not: the numbers are those of the text's own ids, as many or not."""
    words = [model.encode(text, continues=True) for text in (" the", " he", " in", " on", " a")]
    for pieces in (1, 2):
        rows, rng = [], np.random.default_rng(6)
        for k in range(RESPONSES):
            prompt = rng.integers(5, 270, 9).tolist()
            ids = [i for w in rng.integers(len(words), size=8) for i in words[w]]
            if k % 2:  # a byte at a time, as a sampler may draw them
                ids = [i for b in model.decode(ids).encode() for i in model.encode(chr(b), continues=True)]
            again = model.encode(model.decode(ids), continues=True)
            x = model.logprobs_for(prompt, again).tolist()
            if pieces == 2 and len(x) != len(ids):
                x = (x + [-1.5] * len(ids))[: len(ids)]
            rows.append({"prompt_ids": prompt, "response_ids": ids, "logprobs": x})
        found = causes(napier.audit(rows, model))
        assert found == ["retokenised"], (pieces, found)


def test_ids_drawn_at_another_temperature_or_with_a_filter(model):
    rows = lines(model, PLAIN._replace(parameters={"temperature": 0.6}))
    for row in rows:
        del row["temperature"]
        row["logprobs"] = model.logprobs_for(row["prompt_ids"], row["response_ids"]).tolist()
    report = napier.audit(rows, model)
    low, high = report.drawn["temperature_interval"]
    assert report.draws is not None and low < 0.6 < high and causes(report) == []
    filtered = lines(model, PLAIN._replace(parameters={"top_p": 0.7}))
    for row in filtered:
        del row["top_p"]
    assert napier.audit(filtered, model).drawn["top_p"] == 0.7


def test_a_sequence_with_other_numbers_the_second_time(model):
    rows = lines(model, PLAIN)
    again = json.loads(json.dumps(rows[3]))
    again["logprobs"]["engine"][5] += 1e-3
    assert causes(napier.audit([*rows, again], model)) == ["repeats"]


def test_log_softmax_in_bf16_of_an_engine_in_bf16(model):
    rows, rng = lines(model, PLAIN), np.random.default_rng(1)
    for row in rows:
        x = np.array(row["logprobs"]["engine"])
        row["logprobs"]["engine"] = audit_faults.bf16(x + 5e-3 * rng.standard_normal(x.size)).tolist()
    assert causes(napier.audit(rows, model)) == ["precision"]


def test_padding_after_the_end(model):
    rows = lines(model, PLAIN)
    end = 280
    rows[4]["response_ids"] = [i if i != end else 5 for i in rows[4]["response_ids"][:20]] + [end] * 10
    x = model.logprobs_for(rows[4]["prompt_ids"], rows[4]["response_ids"])
    rows[4]["logprobs"]["engine"] = x.tolist()
    assert "after the end" in causes(napier.audit(rows, model))
    rows[4]["response_ids"] = rows[4]["response_ids"][:21]  # one end is right
    rows[4]["logprobs"]["engine"] = x[:21].tolist()
    assert causes(napier.audit(rows, model)) == []


def test_lists_of_another_length(model):
    rows = lines(model, PLAIN)
    for row in rows:
        row["logprobs"]["with the prompt"] = [0.0] * len(row["prompt_ids"]) + row["logprobs"]["engine"]
        row["logprobs"]["without the last"] = row["logprobs"]["engine"][:-1]
    report = napier.audit(rows, model)
    assert [[f.cause for f in found] for found in report.findings.values()] == [[], ["shift"], ["length"]]


def test_shapes_of_engines(model):
    rows = lines(model, PLAIN)
    x, ids = rows[0]["logprobs"]["engine"], rows[0]["response_ids"]
    prompt = {"prompt_token_ids": rows[0]["prompt_ids"]}
    vllm = {**prompt, "outputs": [{"token_ids": ids, "logprobs": [{str(i): {"logprob": v, "rank": 1}} for i, v in zip(ids, x)]}]}
    openai = {**prompt, "choices": [{"token_ids": ids, "logprobs": {"content": [{"token": "a", "logprob": v} for v in x]}}]}
    old = {**prompt, "choices": [{"token_ids": ids, "logprobs": {"token_logprobs": x}}]}
    trl = {"prompt_ids": rows[0]["prompt_ids"], "completion_ids": ids, "sampling_per_token_logps": x, "old_per_token_logps": x}
    for shape in (vllm, openai, old, trl):
        report = napier.audit([shape], model)
        assert report.ok and all(c["tokens"] == TOKENS and c["k3"] < 1e-9 for c in report.costs.values())
    assert list(report.costs) == ["sampler", "trainer"] and ("sampler", "trainer") in report.pairs


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"logprobs": {"engine": [0.5]}}, r"line 2: logprobs\.engine: 1 log-probabilities for 30 ids"),
        ({"logprobs": {"engine": ["x"] * 30}}, r"line 2: logprobs\.engine\[0\]: expected a log-probability"),
        ({"logprobs": None}, "line 2: logprobs: missing"),
        ({"prompt_ids": [5, 290]}, "line 2: prompt: id 290"),
        ({"prompt_ids": []}, "line 2: prompt: empty"),
        ({"prompt_ids": None}, "line 2: prompt: missing"),
        ({"response_ids": [1.5]}, "line 2: response_ids: expected a list of ids"),
        ({"temperature": "hot"}, "line 2: temperature: expected a number"),
        ({"temperature": -1}, "line 2: temperature: below 0"),
        ({"logit_bias": [1]}, "line 2: logit_bias: expected an object"),
    ],
)
def test_bad_input_is_named(model, change, text):
    rows = lines(model, PLAIN)[:2]
    rows[1] = {**rows[1], **change}
    refuses(lambda: napier.audit(rows, model), ValueError, text)


def test_the_program(model, folder, tmp_path):
    def run(*arguments):
        return subprocess.run([sys.executable, "-m", "napier", "audit", *map(str, arguments)], capture_output=True, text=True, timeout=300)

    good, bad, broken = (tmp_path / name for name in ("good.jsonl", "bad.jsonl", "broken.jsonl"))
    good.write_text("".join(json.dumps(row) + "\n" for row in lines(model, PLAIN)))
    bad.write_text("".join(json.dumps(row) + "\n" for row in lines(model, audit_faults.FAULTS["one later"])))
    broken.write_text(good.read_text()[:-20])
    done = run(good, "--model", folder, "--resume", tmp_path / "scores")
    assert done.returncode == 0 and "agrees with the reference to rounding of float32" in done.stdout, done.stderr
    assert run(good, "--model", folder, "--resume", tmp_path / "scores").stdout == done.stdout
    done = run(bad, "--model", folder, "--json", "--sample", 10)
    assert done.returncode == 1 and json.loads(done.stdout)["responses"] == 10
    assert json.loads(done.stdout)["engines"]["engine"]["findings"][0]["cause"] == "shift"
    done = run(broken, "--model", folder)
    assert done.returncode == 2 and f"line {RESPONSES}: JSON" in done.stderr and not done.stdout
    assert run(tmp_path / "none", "--model", folder).returncode == 2


def test_scores_are_kept_for_their_model_and_temperature(model, folder, tmp_path):
    """Nothing of a file of scores is taken for another expectation, precision or text, and damage is passed over."""
    rows, scores = lines(model, PLAIN), tmp_path / "scores"
    rows = [{**row, "temperature": 0.5} for row in rows]
    wanted = {expect: napier.audit(rows, model, expect=expect).text() for expect in ("raw", "temperature")}
    other = napier.CausalLM(folder, compute="bfloat16")
    of_other = napier.audit(rows, other).text()
    for expect in ("raw", "temperature", "raw"):
        assert napier.audit(rows, model, expect=expect, resume=scores).text() == wanted[expect]
    size = scores.stat().st_size
    assert napier.audit(rows, model, resume=scores).text() == wanted["temperature"] and scores.stat().st_size == size
    assert napier.audit(rows, other, resume=scores).text() == of_other
    kept = [json.loads(line) for line in scores.read_text().splitlines()]
    scores.write_text("".join(json.dumps({**item, "scores": item["scores"][: -1 - i]}) + "\n" for i, item in enumerate(kept)) + '{"key": 1')
    assert napier.audit(rows, model, resume=scores).text() == wanted["temperature"]


def test_the_page_has_all_and_needs_no_network(model, tmp_path):
    rows = lines(model, audit_faults.FAULTS["filled with 0"])
    for row in rows:
        row["logprobs"]["</script><b>"] = row["logprobs"]["engine"]
    report = napier.audit(rows, model)
    report.html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page == report.html() and "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    data = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
    assert data == json.loads(report.json()) and "</script><b>" in data["engines"]
    assert len(data["engines"]["engine"]["worst"]) == 20 and data["engines"]["engine"]["curves"]["position"]


def test_the_report_does_not_depend_on_threads(model):
    rows = lines(model, audit_faults.FAULTS["raw, T 0.7"])
    reports = []
    for threads in (1, 2):
        napier.set_num_threads(threads)
        reports.append(napier.audit(rows, model).json())
    assert reports[0] == reports[1]


def test_the_noise_of_float32_grows_with_the_width():
    """The rounding error of a sum of k products in float32, as a share of that of its result in bfloat16."""
    from napier._audit.case import float32_noise

    dice = np.random.default_rng(0)
    for k in (64, 1024, 16384):
        terms = dice.standard_normal((400, k)) * dice.standard_normal((400, k))
        exact = terms.astype(np.float32).astype(np.float64).sum(1)
        ours = np.cumsum(terms.astype(np.float32), 1)[:, -1]
        coarse = (exact.astype(np.float32).view(np.uint32) + 0x8000 & 0xFFFF0000).view(np.float32)
        share = np.median(np.abs(ours - exact)) / np.median(np.abs(coarse - exact))
        assert 0.25 < share / float32_noise([k]) < 4, (k, share, float32_noise([k]))
