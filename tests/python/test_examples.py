"""The gallery: every program in examples/ that needs no PyTorch runs to its end. (Those with PyTorch: tests/peers.)"""

import json
import pathlib
import shutil

import pytest

import napier
from conftest import run_python
from test_model import have

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_begins_with_what_it_shows(path):
    text = path.read_text().removeprefix("#!/usr/bin/env python3\n")
    assert text.startswith('"""') and len(path.read_text().splitlines()) < 200


@pytest.mark.parametrize("name", ["grpo_toy.py", "small_model.py", "streaming_logsumexp.py", "topic_map.py", "umap_digits.py"])
def test_help(name, tmp_path):
    said = run_python(EXAMPLES / name, "--help", cwd=tmp_path)
    assert said.startswith("usage: ") and name in said and not list(tmp_path.iterdir())


def test_logsumexp_of_a_file_larger_than_memory(tmp_path):
    said = run_python(EXAMPLES / "streaming_logsumexp.py", 64, cwd=tmp_path)
    assert "the same bits" in said and not list(tmp_path.iterdir())


def test_map_of_digits():
    run_python(EXAMPLES / "umap_digits.py")


def test_normalised_logprobs(tmp_path):
    assert "within the bound" in run_python(EXAMPLES / "normalised_logprobs.py", cwd=tmp_path)


def test_grpo_on_a_toy_policy(tmp_path):
    said = run_python(EXAMPLES / "grpo_toy.py", "grpo.svg", cwd=tmp_path)
    assert "mean reward" in said and (tmp_path / "grpo.svg").read_text().startswith("<svg")


@have
def test_the_report_that_the_documentation_reads():
    assert run_python(EXAMPLES / "audit_report.py") in (EXAMPLES.parent / "docs" / "audit.md").read_text(encoding="utf-8")


@have
def test_small_model(tmp_path):
    """It loads, and its tokenizer has every byte, so that docs/scale.md's commands run on any machine."""
    run_python(EXAMPLES / "small_model.py", "small", cwd=tmp_path)
    model = napier.CausalLM(tmp_path / "small")
    assert model.encode("\u00e9\n x") == [*"\u00e9\n x".encode()] and model.decode([*"\u00e9\n".encode(), 256]) == "\u00e9\n<|endoftext|>"
    prompts = [json.loads(line)["prompt"] for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]
    assert len(prompts) == 100 and len(model.generate(prompts[:3], max_tokens=2).stopped) == 3


def test_gallery_of_the_site(tmp_path):
    """Its scripts run, and each makes a page, pictures and a notebook (docs/site/gallery.py)."""
    for name in ("matplotlib", "sklearn"):
        pytest.importorskip(name)
    docs = EXAMPLES.parent / "docs"
    folder = shutil.copytree(docs / "gallery", tmp_path / "gallery")
    code = f"import sys, pathlib; sys.path.append('{docs / 'site'}'); import gallery; gallery.write_pages(pathlib.Path('{folder}'))"
    run_python("-c", code, cwd=EXAMPLES.parent)
    made = [json.loads(path.read_text()) for path in folder.glob("*.ipynb")]
    assert len(made) == len(list(folder.glob("*.py"))) >= 4 and all(book["nbformat"] == 4 for book in made)
    assert len(list(folder.glob("*.png"))) >= len(made)
