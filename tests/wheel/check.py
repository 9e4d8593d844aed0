"""What an installed wheel must do without a compiler, without this repository's build: run as a program, or by
tests/wheel/run.sh. Prints one line per check; the last line counts."""

import importlib.metadata
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "support"))
passed = failed = 0


def check(name, is_good, detail=""):
    global passed, failed
    passed, failed = passed + bool(is_good), failed + (not is_good)
    print("ok   " if is_good else "FAIL ", name, detail, flush=True)


def check_readme(random, x, logits, ids):
    """The example of python/README.md, which the wheel carries as its description, line by line."""
    import docstrings

    block = re.search(r"```python\n(.*?)```", importlib.metadata.metadata("napier-math")["Description"], re.S)[1]
    with tempfile.TemporaryDirectory() as temporary:
        docstrings.models(pathlib.Path(temporary))
        names = {"x": x, "logits": logits, "ids": ids, "data": random.standard_normal((200, 8)),
                 "folder": pathlib.Path(temporary) / "Qwen3-0.6B", "prompts": ["One, two,"], "responses": [" three"]}
        for line in filter(None, block.splitlines()):
            if "torch" in line and not importlib.util.find_spec("torch"):
                print("skip  README: napier.torch needs PyTorch")
                continue
            try:
                exec(line, names)  # noqa: S102
                error = ""
            except Exception as raised:
                error = repr(raised)
            check(f"README: {line.split('#')[0].strip()}", not error, error)


def check_program():
    """The program that the wheel carries, as a module; tests/python has its script."""
    shown = subprocess.run([sys.executable, "-m", "napier", "info"], capture_output=True, text=True)
    check("python -m napier info", shown.returncode == 0 and "tokenizer and model" in shown.stdout, shown.stderr)


def import_seconds(before):
    """The processor time of `import napier` after other lines: the least of some, so that a busy machine does not count."""
    code = f"import time\n{before}\na = time.process_time(); import napier; print(time.process_time() - a)"
    return min(float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout) for _ in range(15))


def main():
    import numpy as np

    import napier

    native = pathlib.Path(napier.__file__).parent
    check("imported from the wheel", "site-packages" in native.parts, str(native))
    files = [str(file) for file in importlib.metadata.files("napier-math")]
    for name in ("cJSON.txt", "PCRE2.md", "utf8proc.md", "LICENSE"):
        check(f"licence {name}", any(file.endswith(name) for file in files))
    check("the page of interactive maps", (native / "_umap" / "map_page.html").is_file())
    x = np.array([[1, 2, 3], [1000, 0, -1000]], dtype=np.float32)
    want = np.array([[0.09003057, 0.24472848, 0.66524094], [1, 0, 0]], dtype=np.float32)
    check("softmax", (napier.softmax(x) == want).all())
    check("logsumexp", np.allclose(napier.logsumexp(x, axis=-1), [3.40760596, 1000], rtol=1e-7))
    random = np.random.default_rng(1)
    logits, ids = random.standard_normal((64, 1000)).astype(np.float32), random.integers(0, 1000, 64)
    check("token_logprobs", np.allclose(napier.token_logprobs(logits, ids).logprobs,
                                        napier.log_softmax(logits)[np.arange(64), ids], atol=1e-5))
    check("UMAP", napier.UMAP(n_neighbors=5).fit_transform(random.standard_normal((200, 8))).shape == (200, 2))
    check("the tokenizer is in this build", hasattr(napier, "Tokenizer"))
    check_program()
    check_readme(random, x, logits, ids)
    own, whole = import_seconds("import numpy"), import_seconds("")
    check("import napier in less than 20 ms, or on a slow machine a fifth of the time with NumPy",
          own < max(0.020, whole / 5), f"({1e3 * own:.1f} ms; {1e3 * whole:.1f} ms with NumPy's own import)")
    print(f"{passed} passed, {failed} failed (Python {sys.version.split()[0]}, NumPy {np.__version__})")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
