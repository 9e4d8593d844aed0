"""napier.hf.patch with a mesh over gloo: logits, texts, log-probabilities, gradients and trained weights of a model that is divided over
1, 2 and 4 ranks have the bits of one process; what a layer sends; refusals. The processes are those of tensor_parallel_ranks.py."""
import functools
import json
import os

from support import ROOT, python


@functools.cache
def said():
    result = python(os.path.join(ROOT, "tests", "peers", "tensor_parallel_ranks.py"), OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stdout[-1500:] + result.stderr[-1500:]
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def test_divided_models_have_the_bits_of_one_process():
    found = [line for line in said() if "differ" in line]
    assert len(found) == 2 * 7 + 3 * 4
    assert all(line["differ"] == [] and line["checked"] > 45 for line in found), found
    first = [line["weights"] for line in found[:7]]
    assert max(first[3:]) < first[0] / 3.5, first


def test_what_a_layer_sends():
    """The counts of docs/scale.md: elements for each token, of which half is received on two ranks, and for each weight."""
    hidden, middle, tokens = 64, 96, 8
    for line in (line for line in said() if "counted" in line):
        heads = 32 if line["counted"] == "Qwen3" else 64  # keys have as many
        norms = 2 * heads if line["counted"] == "Qwen3" else 0
        weights = 4 * heads * hidden + 3 * middle * hidden
        forward = heads + 2 * hidden + middle
        backward = 3 * middle + 5 * hidden + 4 * heads + norms
        assert line["more"][0] == [4, forward * tokens // 2], line
        assert line["more"][1] == [4 + (2 if norms else 0), (forward + norms) * tokens // 2], line
        assert line["more"][2] == [19 + (2 if norms else 0), backward * tokens // 2 + weights // 4], line


def test_refusals():
    assert [line["refused"] for line in sorted((line for line in said() if "refused" in line), key=lambda line: line["refused"])] == [0, 1]
