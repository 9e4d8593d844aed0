"""config.json and model.safetensors: sizes that do not fit, offsets that lie, headers that are none, shards."""

import json

import mutate
from case import Case
from formats import language

SHARE = 220


CONFIG, WEIGHTS = "model/config.json", "model/model.safetensors"


# ---- Mutations: each changes the files, and says what it did ----------------------------------------------------------


def config_tree(rng, files):
    what, files[CONFIG] = mutate.change_json(rng, json.dumps(language.CONFIG))
    return "config: " + what


def config_wide(rng, files):
    text = json.dumps(language.CONFIG)
    files[CONFIG] = (text[:-1] + ', "x": [' + "0," * 10**6 + "0]}").encode()
    return "config: wide"


def config_number(rng, files):
    config = dict(language.CONFIG)
    key = rng.choice([k for k, v in config.items() if isinstance(v, (int, float)) and not isinstance(v, bool)])
    config[key] = rng.choice([mutate.number(rng), 0.5, config[key] * 2, config[key] + 1])
    if rng.random() < 0.3:
        config["num_hidden_layers"] = rng.choice([10**6, 10**9, 2])
    files[CONFIG] = json.dumps(config).encode()
    return "config: " + key


def entry(rng, files):
    """One tensor: its dtype, its shape or its place."""
    entries, data = language.tensors()
    name = rng.choice(list(entries))
    e = entries[name]
    kind = rng.randrange(6)
    if kind == 0:
        e["dtype"] = rng.choice(["F32", "F16", "F64", "I64", "BOOL", "U8", "F8_E4M3", "F4", "", "bf16", "\x1b[31m", 3, None])
    elif kind == 1:
        e["shape"] = rng.choice([[], [1] * 9, e["shape"][::-1] + [1], [2**32, 2**32], [0, 2**63], [-8], [8.5], "8", [2**53, 2**53], [4, 16]])
    elif kind == 2:
        e["data_offsets"] = rng.choice([[0, 0], [5, 3], [-1, 7], [0, 2**63], [0, 2**64], [2**53, 2**53 + 16], [1], [0, 1, 2], "ab", [0.5, 16.5],
                                        [len(data), len(data) + 16], [len(data) - 8, len(data) + 8]])
    elif kind == 3:  # two tensors in one place, or a byte off it
        other = entries[rng.choice(list(entries))]["data_offsets"]
        size = e["data_offsets"][1] - e["data_offsets"][0]
        begin = max(0, other[0] + rng.choice([0, 1, -1, 2]))
        e["data_offsets"] = [begin, begin + size]
    elif kind == 4:
        del entries[name]
    else:
        entries[rng.choice(["", "a" * 70000, "\x1b[31m", "model.layers.1.x", name.upper(), "__metadata__"])] = dict(e)
    files[WEIGHTS] = language.safetensors(json.dumps(entries).encode(), data)
    return "tensor: %d" % kind


def header_tree(rng, files):
    entries, data = language.tensors()
    what, header = mutate.change_json(rng, json.dumps(entries))
    files[WEIGHTS] = language.safetensors(header, data)
    return "header: " + what


def header_length(rng, files):
    entries, data = language.tensors()
    header = json.dumps(entries).encode()
    files[WEIGHTS] = language.safetensors(header, data, rng.choice([mutate.number(rng), len(header) - 1, len(header) + 1,
                                                                                     len(header) + len(data) + 7, len(header) + len(data) + 8]))
    return "header length"


def header_text(rng, files):
    _, data = language.tensors()
    header = rng.choice([b"", b"{}", b"[]", b"null", b"{" * 5000, b"\0" * 64, b"\xff" * 64, b'{"a":' * 3000 + b"1", b'{"__metadata__": {}}',
                         b'{"a": {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]}' + b"," + b'"a": {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]}}',
                         b"{" + b",".join(b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(8000)) + b"}",
                         b'{"__metadata__":{"a":[' + b"0," * 10**6 + b'0]}}'])
    files[WEIGHTS] = language.safetensors(header, data)
    return "header text"


def cut(rng, files):
    name = rng.choice([WEIGHTS, WEIGHTS, CONFIG])
    files[name] = files[name][: rng.choice([0, 1, 7, 8, 9, 100, len(files[name]) // 2, len(files[name]) - 1])]
    return "cut " + name


def damaged(rng, files):
    name = rng.choice(list(files))
    how, files[name] = mutate.damage(rng, files[name])
    return "%s %s" % (how, name)


def values(rng, files):
    """Weights that are no numbers."""
    entries, data = language.tensors()
    data = bytearray(data)
    for _ in range(rng.choice([1, 20])):
        at = 2 * rng.randrange(len(data) // 2)
        data[at : at + 2] = rng.choice([b"\xc0\x7f", b"\x80\x7f", b"\x80\xff", b"\x01\x00", b"\x7f\x7f", b"\x00\x80", b"\xff\xff"])
    files[WEIGHTS] = language.safetensors(json.dumps(entries).encode(), bytes(data))
    return "odd weights"


def experts(rng, files):
    """A mixture of experts, each with its tensors, or with those of all together; the config may lie."""
    mlp = language.LAYER + "mlp."
    apart = [(mlp + "experts.%d.%s_proj" % (e, name), [8, 8]) for e in range(3) for name in ("gate", "up", "down")]
    fused = [(mlp + "experts.gate_up_proj", [3, 16, 8]), (mlp + "experts.down_proj", [3, 8, 8])]
    shapes = [t for t in language.TENSORS if not t[0].startswith(mlp)] + [(mlp + "gate", [3, 8])] + rng.choice([apart, fused])
    entries, data = language.tensors(shapes, [name for name, _ in shapes if rng.random() < 0.3])
    config = {**language.CONFIG, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 3,
              "num_experts_per_tok": 2, "moe_intermediate_size": 8, "norm_topk_prob": rng.random() < 0.5}
    key = rng.choice(["num_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step", "mlp_only_layers", "none"])
    config[key] = rng.choice([0, 1, 2, 3, 4, 1024, 1025, [], [0], [-1], [16384], [10**18], mutate.number(rng)])
    files[CONFIG] = json.dumps(config).encode()
    files[WEIGHTS] = language.safetensors(json.dumps(entries).encode(), data)
    return "experts: " + key


def two_dtypes(rng, files):
    """Some tensors are f32, in a model of two layers: each layer's products need other memory."""
    second = [(name.replace("layers.0", "layers.1"), shape) for name, shape in language.TENSORS if "layers.0" in name]
    shapes = language.TENSORS + second
    entries, data = language.tensors(shapes, [name for name, _ in shapes if rng.random() < 0.5])
    files[CONFIG] = json.dumps({**language.CONFIG, "num_hidden_layers": 2}).encode()
    files[WEIGHTS] = language.safetensors(json.dumps(entries).encode(), data)
    return "two dtypes"


def shards(rng, files):
    """An index in place of one file: names that lead elsewhere, tensors that are not there, the same file twice."""
    entries, data = language.tensors()
    whole = files.pop(WEIGHTS)
    index = {"metadata": {"total_size": len(data)}, "weight_map": {name: "model-00001-of-00001.safetensors" for name in entries}}
    files["model/model-00001-of-00001.safetensors"] = whole
    files["outside.safetensors"] = whole
    names = list(entries)
    kind = rng.randrange(4)
    if kind == 0:
        index["weight_map"][rng.choice(names)] = rng.choice(
            ["../outside.safetensors", "/dev/zero", "", ".", "..", "model-00001-of-00001.safetensors/", "\x1b[31m", "a\0b", "x" * 5000,
             "config.json", "./model-00001-of-00001.safetensors", 3, None, []])
    elif kind == 1:
        for i, name in enumerate(names):
            index["weight_map"][name] = "s%d.safetensors" % i
            files["model/s%d.safetensors" % i] = whole
    elif kind == 2:
        index["weight_map"].update({"x%d" % i: "y%d" % i for i in range(3000)})
    text = json.dumps(index)
    files["model/model.safetensors.index.json"] = mutate.change_json(rng, text)[1] if kind == 3 else text.encode()
    return "shards: %d" % kind


MUTATIONS = [config_tree, config_number, entry, header_tree, header_length, header_text, cut, damaged, values, shards, experts, two_dtypes, experts, entry, config_number, entry, config_tree, config_wide]


def good(rng):
    words, more, outputs = language.command(rng)
    return Case("good", words, {**language.files(), **more}, outputs=outputs)


def make(rng, index):
    files = language.files()
    what = MUTATIONS[index % len(MUTATIONS)](rng, files)
    words, more, out = language.command(rng)
    return Case(what, words, {**files, **more}, outputs=out)
