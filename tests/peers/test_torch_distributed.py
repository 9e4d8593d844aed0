"""napier.torch.distributed over gloo: the bits of one process for every count of ranks and any boundaries, DTensors, refusals, and
what happens when a rank is killed. The processes are those of distributed_ranks.py."""
import json
import os

from support import ROOT, python

ENVIRONMENT = dict(OMP_NUM_THREADS="1")  # the ranks are forked, and the threads of PyTorch's OpenMP do not survive that


def ranks(mode):
    result = python(os.path.join(ROOT, "tests", "peers", "distributed_ranks.py"), mode, **ENVIRONMENT)
    assert result.returncode == 0, result.stderr[-2000:]
    lines = result.stdout.splitlines()
    said = [json.loads(line) for line in lines if line.startswith("{")]
    return said, [line for line in lines if not line.startswith("{")]


def test_every_count_of_ranks_has_the_bits_of_one_process():
    said, table = ranks("golden")
    errors = [line["error"] for line in said if "error" in line]
    assert not errors, errors[:5]
    assert [line["ranks"] for line in said] == [1, 2, 3, 4, 8]
    assert all(line["differences"] == 0 and line["checked"] >= 340 for line in said), said
    with open(os.path.join(ROOT, "tests", "bits", "v1", "golden_shards.txt")) as golden:
        assert table == golden.read().split("\n")[:-1], "the golden table, which MPI's ranks have too"


def test_dtensors():
    said, _ = ranks("dtensor")
    assert [line.get("dtensor") for line in said] == [2, 2, 4, 4, 4, 4], said


def test_refusals():
    said, _ = ranks("refusals")
    assert [line.get("refusals") for line in said] == [11, 11], said


def test_a_killed_rank_ends_the_others():
    said, _ = ranks("kill")
    killed = next(line["killed"] for line in said if "killed" in line)
    errors = [line for line in said if "error" in line]
    assert sorted(line["rank"] for line in errors) == [0, 1], said
    for line in errors:
        assert line["error"].startswith("RuntimeError: napier.torch.distributed: rank "), line
        assert "another rank has ended" in line["error"], line
        assert line["at"] - killed < 30, line
    assert next(line["statuses"] for line in said if "statuses" in line) == [1, 1, -9]


def test_example():
    """examples/sharded_vocabulary.py by torchrun: the checksums of one process and of two."""
    said = set()
    for processes in (1, 2):
        done = python("-m", "torch.distributed.run", "--nproc-per-node", processes, "--master-port", 29400 + os.getpid() % 1000,
                      os.path.join(ROOT, "examples", "sharded_vocabulary.py"), **ENVIRONMENT)
        assert done.returncode == 0, done.stderr[-2000:]
        said.add(done.stdout.strip().split(" ", 1)[1])
    assert len(said) == 1, said
