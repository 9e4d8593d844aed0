"""The examples with PyTorch. compare_with_transformers.py: the same ids and close log-probabilities. grpo_qwen3.py: rewards rise, and the C forward pass agrees with PyTorch's on the way.
zero_mismatch.py: sampler, scorer and trainer agree on every token."""
import os
import re
import shutil
import tempfile

import torch

import model_data
from support import ROOT, python


def test_a_model_beside_transformers():
    with tempfile.TemporaryDirectory() as folder:
        model_data.save(model_data.make(torch.bfloat16, vocab_size=307), folder, torch.bfloat16)
        shutil.copy(os.path.join(ROOT, "tests", "support", "tiny_tokenizer.json"), os.path.join(folder, "tokenizer.json"))
        done = python(os.path.join(ROOT, "examples", "compare_with_transformers.py"), folder)
        assert done.returncode == 0 and "token ids: the same" in done.stdout, done.stdout + done.stderr
        return done.stdout.splitlines()[-1]


def test_a_small_qwen3_learns_by_reward():
    with tempfile.TemporaryDirectory() as folder:
        curve = os.path.join(folder, "curve.svg")
        done = python(os.path.join(ROOT, "examples", "grpo_qwen3.py"), "--steps", 140, "--curve", curve)
        assert done.returncode == 0, done.stderr
        with open(curve, encoding="ascii") as file:
            assert file.read().startswith("<svg")
    first, last = map(float, re.search(r"first ten steps ([\d.]+), of the last ten ([\d.]+)", done.stdout).groups())
    assert last > first + 0.15, done.stdout
    apart = [float(x) for x in re.findall(r"at most ([\d.e+-]+) apart", done.stdout)]
    assert apart and max(apart) < 1e-4, done.stdout
    return f"reward {first} to {last}, C and PyTorch within {max(apart):.1e}"


def test_no_mismatch_under_trl():
    with tempfile.TemporaryDirectory() as folder:
        picture = os.path.join(folder, "picture.svg")
        done = python(os.path.join(ROOT, "examples", "zero_mismatch.py"), "--steps", 4, "--picture", picture)
        assert done.returncode == 0, done.stderr
        with open(picture, encoding="utf-8") as file:
            assert "Napier, bf16: at most 0 " in file.read()
    apart = re.findall(r"difference to the trainer (\S+)", done.stdout)
    assert apart[:2] == ["0,", "0,"] and len(apart) == 4 and float(apart[3]) > 0, done.stdout
    return f"0 and 0 with Napier, {apart[2]} and {apart[3]} with transformers"
