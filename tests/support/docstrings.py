"""The examples in docstrings of the Python package: whether each public name has one, and whether it runs.

Examples that need a model find small ones with random weights in the current folder, under the names of large ones:
Qwen3-0.6B, and Qwen3-0.6B-Reward, a reward model. tests/python and tests/peers call this, each for the modules that its
environment can import.
"""
import doctest
import importlib.util
import inspect
import json
import pathlib
import re
import shutil

import numpy as np

TOKENIZER = pathlib.Path(__file__).with_name("tiny_tokenizer.json")
LAYERS, HIDDEN, HEADS, KV_HEADS, DIM, MIDDLE, VOCABULARY = 2, 32, 4, 2, 16, 48, 290
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
          "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DIM, "intermediate_size": MIDDLE,
          "vocab_size": VOCABULARY, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
          "tie_word_embeddings": True, "max_position_embeddings": 512, "attention_bias": False, "bos_token_id": 278,
          "eos_token_id": 280, "torch_dtype": "float32"}

TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

# Names without an example, and why.
WITHOUT = {
    "napier.rl": {name: "a result; the functions that return it have one" for name in
                  ("GrpoFromHidden", "GrpoFromLogits", "GrpoLoss", "Sampled", "TokenLogprobs")},
    "napier.umap": {**{name: "a result; the functions that return it have one" for name in ("Graph", "Quality")},
                    "ParametricUMAP.update": "an error that says what to call instead"},
    "napier.umap.plot": {name: "for a window, a notebook or a browser" for name in ("output_file", "output_notebook", "show")},
    "napier.torch": {f"{kind}.{method}": "PyTorch calls it" for kind in ("LogSoftmax", "LogSumExp", "Softmax")
                     for method in ("extra_repr", "forward")},
    "napier.lm_eval": {"main": "the harness's command: python -m napier.lm_eval"},
}


def shapes(vocabulary=VOCABULARY):
    yield "model.embed_tokens.weight", (vocabulary, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (HIDDEN,)
        yield at + "post_attention_layernorm.weight", (HIDDEN,)
        for name, rows, cols in [("self_attn.q_proj", HEADS * DIM, HIDDEN), ("self_attn.k_proj", KV_HEADS * DIM, HIDDEN),
                                 ("self_attn.v_proj", KV_HEADS * DIM, HIDDEN), ("self_attn.o_proj", HIDDEN, HEADS * DIM),
                                 ("mlp.gate_proj", MIDDLE, HIDDEN), ("mlp.up_proj", MIDDLE, HIDDEN),
                                 ("mlp.down_proj", HIDDEN, MIDDLE)]:
            yield f"{at}{name}.weight", (rows, cols)
        yield at + "self_attn.q_norm.weight", (DIM,)
        yield at + "self_attn.k_norm.weight", (DIM,)


def weights(shapes, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return {name: (rng.standard_normal(shape) * 0.2 + (len(shape) == 1)).astype(dtype) for name, shape in shapes}


def write_model(folder, config, weights, word="F32"):
    """A checkpoint and the tokenizer of the tests."""
    header, body = {}, b""
    for name, x in weights.items():
        header[name] = {"dtype": word, "shape": list(x.shape), "data_offsets": [len(body), len(body) + x.nbytes]}
        body += x.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + body)
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(TOKENIZER, folder / "tokenizer.json")


def models(folder):
    write_model(folder / "Qwen3-0.6B", CONFIG, weights(shapes()))
    (folder / "Qwen3-0.6B" / "chat_template.jinja").write_text(TEMPLATE)
    reward = {**CONFIG, "architectures": ["Qwen3ForSequenceClassification"], "id2label": {"0": "reward"}}
    write_model(folder / "Qwen3-0.6B-Reward", reward, weights([*shapes(), ("score.weight", (1, HIDDEN))]))


def public(module):
    """The public names of a module, with what they stand for: functions and classes of this package."""
    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    if module.__name__ == "napier.umap":
        names = {*names, "AlignedUMAP", "ParametricUMAP", "parametric_loss"}  # imported on first use
    found = {n: getattr(module, n) for n in names}
    return {n: x for n, x in found.items() if callable(x) and (getattr(x, "__module__", None) or "").startswith("napier")}


def methods(kind):
    """The public methods that a class gets from this package."""
    for name in dir(kind):
        owner = next((c for c in kind.__mro__ if name in vars(c)), object)
        method = getattr(kind, name, None)
        home = owner.__module__, getattr(method, "__module__", None) or "napier"  # a method of C names no module
        if not name.startswith("_") and callable(method) and all(module.startswith("napier") for module in home):
            yield name, method


def without(name):
    """The public names of a module that have no example. A method may have its in the class's."""
    def has(x):
        return "Examples\n--------\n>>> " in (inspect.getdoc(x) or "")
    left_out = WITHOUT.get(name, {})
    for n, x in public(importlib.import_module(name)).items():
        if not has(x) and n not in left_out:
            yield f"{name}.{n}"
        if inspect.isclass(x) and not issubclass(x, tuple):
            example = inspect.getdoc(x) or ""
            yield from (f"{name}.{n}.{m}" for m, f in methods(x)
                        if not has(f) and f".{m}(" not in example and f"{n}.{m}" not in left_out)


def untyped(name):
    """The public functions of a module, and methods of its classes, with an argument that has no type here or in a stub."""
    for n, x in public(importlib.import_module(name)).items():
        of_class = [(f"{n}.{m}", f) for m, f in methods(x)] + [(n, vars(x).get("__init__"))] if inspect.isclass(x) else [(n, x)]
        for place, f in of_class:
            if inspect.isfunction(f) and not pathlib.Path(inspect.unwrap(f).__code__.co_filename).with_suffix(".pyi").exists():
                parameters = list(inspect.signature(f).parameters.values())[inspect.isclass(x) and not inspect.ismethod(f):]
                if any(p.annotation is p.empty for p in parameters):
                    yield f"{name}.{place}"


def can_run(test):
    """Whether what the example imports is installed."""
    imports = re.findall(r"^ *>>> (?:import|from) ([\w., ]+)", test.docstring or "", re.M)
    roots = {name.split(".")[0].split()[0] for names in imports for name in names.split(" import ")[0].split(", ")}
    return all(importlib.util.find_spec(root) for root in roots)


def run(name):
    """Runs the examples of a module: (examples, failures, what doctest says of those)."""
    module = importlib.import_module(name)
    finder, runner, said = doctest.DocTestFinder(exclude_empty=True), doctest.DocTestRunner(verbose=False), []
    tests = finder.find(module, name, globs={}) if module.__doc__ else []
    for n, x in public(module).items():
        tests += finder.find(x, f"{name}.{n}", module=False, globs={})
    for test in {test.name: test for test in tests}.values():
        if can_run(test):
            runner.run(test, out=said.append)
    return runner.tries, runner.failures, "".join(said)


def check(name):
    """Fails where a public name of a module has no example, or an example fails. Returns the number of examples."""
    missing = list(without(name))
    assert not missing, missing
    assert not list(untyped(name)), list(untyped(name))
    tries, failures, said = run(name)
    assert tries and not failures, said
    return tries
