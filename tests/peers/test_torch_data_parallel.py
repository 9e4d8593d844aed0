"""napier.torch.data_parallel over gloo: the weights after training are the same bytes on 1, 2 and 4 processes, in a plain loop, with FSDP
and with GRPOTrainer; a process that is killed ends the others, and the run goes on from its checkpoint with the same bytes; refusals. The
processes are those of data_parallel_ranks.py."""
import functools
import json
import os

from support import ROOT, python


@functools.cache
def parts():
    """What the processes say, by part."""
    result = python(os.path.join(ROOT, "tests", "peers", "data_parallel_ranks.py"), OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stdout[-1500:] + result.stderr[-1500:]
    said = {}
    for line in map(json.loads, filter(lambda line: line.startswith("{"), result.stdout.splitlines())):
        if "part" in line:
            said[line["part"]] = found = []
        else:
            found.append(line)
    return said


def weights_by_model(said, processes):
    """One hash for each family and mode, whatever the number of processes."""
    found = {}
    for line in said:
        found.setdefault((line["family"], line["mode"]), set()).add(line["weights"])
    assert len(said) == processes and all(len(hashes) == 1 for hashes in found.values()), said
    return found


def test_a_loop_has_the_same_weights_on_every_number_of_processes():
    said = parts()["loop"]
    found = weights_by_model(said, 2 * 7 + 2 * 5 + 2 + 2 * 6 + 2 * 2)
    assert len(found) == 4 and len({tuple(line["norms"]) for line in said}) == 4


def test_a_trainer_has_the_same_weights_on_every_number_of_processes():
    said = parts()["trainer"]
    assert len(weights_by_model(said, 7 + 3)) == 2
    assert all(set(line["apart"]) <= {0} for line in said), said


def test_a_killed_process_ends_the_others_and_the_run_goes_on():
    said = parts()["kill"]
    killed = next(line["killed"] for line in said if "killed" in line)
    errors = [line for line in said if "error" in line]
    assert len(errors) == 3 and all(line["at"] - killed < 10 for line in errors), said
    # a rank may notice in PyTorch's own message, the broadcast of buffers before the forward pass
    assert all("napier.torch" in line["error"] or " by peer" in line["error"] for line in errors), said
    assert [line["statuses"] for line in said if "statuses" in line] == [[1, 1, -9, 1]]
    resumed = [line["weights"] for line in said if "weights" in line]
    assert len(resumed) == 3 and len(set(resumed)) == 1, said
    return f"{max(line['at'] for line in errors) - killed:.1f} s after"


def test_refusals():
    assert [line.get("refused") for line in parts()["refusals"]] == [2, 2, 3, 3, 3]
