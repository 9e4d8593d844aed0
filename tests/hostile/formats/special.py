"""Files that are none: FIFOs, devices, folders, loops of links, what may not be read or written; full disks; one file
under two names. Every place of a command line that names a file meets each of them."""

import json

import mutate
from case import Case
from formats import jsonl, language, npy, npz, umap_model

SHARE = 600


def good_files(rng):
    table = npy.table(rng)
    return {"in.npy": table, "again.npy": table, "labels.txt": b"a\nb\n" * 6, "rubric.npy": npy.table(rng, 2, 3), "weights.csv": b"1\n2\n",
            "in.jsonl": b"\n".join(json.dumps(jsonl.line(rng)).encode() for _ in range(3)), "map.npy": npy.table(rng, 12, 2),
            "chat.jsonl": b'{"prompt": "a", "responses": ["b", "c"]}\n', "c.jsonl": language.CRITERIA, "template": b"{prompt}{response}{criterion}",
            "text": b"hello world\n" * 10, "in.npz": npz.archive(npz.members(npz.parts())), **language.files()}


UMAP = ["umap", "in.npy", "--n-epochs", "2", "--n-neighbors", "3"]
# Command lines whose one word is a file that is read.
INPUTS = [
    (["softmax", "in.npy", "-o", "out.npy"], "in.npy"),
    (["logsumexp", "in.npy", "--axis", "0", "-o", "out.npy"], "in.npy"),
    (UMAP + ["-o", "out.npy"], "in.npy"),
    (["umap", "in.npz", "--n-epochs", "2", "--n-neighbors", "3", "-o", "out.npy"], "in.npz"),
    (UMAP + ["--labels", "labels.txt", "--plot", "p.svg"], "labels.txt"),
    (UMAP + ["--target", "labels.txt", "-o", "out.npy"], "labels.txt"),
    (UMAP + ["--hover", "labels.txt", "--plot", "p.html"], "labels.txt"),
    (UMAP + ["--init", "map.npy", "-o", "out.npy"], "map.npy"),
    (["umap", "--embedding", "map.npy", "--plot", "p.svg"], "map.npy"),
    (["umap", "in.npy", "--transform", "m.umap", "-o", "out.npy"], "m.umap"),
    (["umap", "map.npy", "--inverse-transform", "m.umap", "-o", "out.npy"], "m.umap"),
    (["grpo", "in.jsonl", "-o", "out.json"], "in.jsonl"),
    (["kl", "--logprobs", "in.npy", "--ref", "again.npy", "-o", "out.jsonl"], "again.npy"),
    (["kl", "--logits", "in.npy", "--ref-logits", "again.npy", "-o", "out.jsonl"], "in.npy"),
    (["rubric", "in.jsonl", "--rubric", "rubric.npy", "-o", "out.jsonl"], "rubric.npy"),
    (["rubric", "in.jsonl", "--rubric", "rubric.npy", "--weights", "weights.csv", "-o", "out.jsonl"], "weights.csv"),
    (["tokenize", "text", "--model", "model", "-o", "out.txt"], "text"),
    (["tokenize", "text", "--model", "model", "-o", "out.txt"], "model/tokenizer.json"),
    (["tokenize", "text", "--model", "model", "-o", "out.txt"], "model"),
    (["logprobs", "chat.jsonl", "--model", "model", "-o", "out.jsonl"], "chat.jsonl"),
    (["logprobs", "chat.jsonl", "--model", "model", "-o", "out.jsonl"], "model/config.json"),
    (["logprobs", "chat.jsonl", "--model", "model", "-o", "out.jsonl"], "model/model.safetensors"),
    (["logprobs", "chat.jsonl", "--model", "model", "-o", "out.jsonl"], "model/model.safetensors.index.json"),
    (["judge", "chat.jsonl", "--model", "model", "--criteria", "c.jsonl", "-o", "out.jsonl"], "c.jsonl"),
    (["judge", "chat.jsonl", "--model", "model", "--criteria", "c.jsonl", "--template", "template", "-o", "out.jsonl"], "template"),
]
# Those whose one word is a file that is written.
OUTPUTS = [
    (["softmax", "in.npy", "-o", "out.npy"], "out.npy"),
    (["logsumexp", "in.npy", "-o", "out.csv"], "out.csv"),
    (UMAP + ["-o", "out.npy"], "out.npy"),
    (UMAP + ["--save-model", "m.umap"], "m.umap"),
    (UMAP + ["-o", "out.npy", "--save-model", "m.umap", "--plot", "p.svg"], "m.umap"),
    (UMAP + ["-o", "out.npy", "--save-model", "m.umap", "--plot", "p.svg"], "p.svg"),
    (UMAP + ["--plot", "p.svg"], "p.svg"),
    (UMAP + ["--plot", "p.html"], "p.html"),
    (["grpo", "in.jsonl", "-o", "out.json"], "out.json"),
    (["grpo", "in.jsonl", "-o", "out.json", "--losses", "l.npy"], "l.npy"),
    (["grpo", "in.jsonl", "-o", "out.json", "--gradients", "g.npy"], "g.npy"),
    (["kl", "in.jsonl", "-o", "out.jsonl"], "out.jsonl"),
    (["kl", "in.jsonl", "-o", "out.npy"], "out.npy"),
    (["rubric", "in.jsonl", "--rubric", "rubric.npy", "-o", "out.jsonl"], "out.jsonl"),
    (["rubric", "in.jsonl", "--rubric", "rubric.npy", "--rewards", "r.npy", "-o", "out.jsonl"], "r.npy"),
    (["tokenize", "text", "--model", "model", "-o", "out.txt"], "out.txt"),
    (["logprobs", "chat.jsonl", "--model", "model", "-o", "out.jsonl"], "out.jsonl"),
    (["judge", "chat.jsonl", "--model", "model", "--criteria", "c.jsonl", "-o", "out.jsonl"], "out.jsonl"),
]
# Two words that name what is written and what is read, or two files that are written, as one file.
SAME = [
    (["umap", "in.npy", "--n-epochs", "2", "--n-neighbors", "3", "--save-model", "in.npy"], True),
    (UMAP + ["--plot", "in.npy.svg", "-o", "in.npy.svg"], True),
    (UMAP + ["-o", "x", "--save-model", "x"], True),
    (UMAP + ["-o", "x", "--save-model", "./x"], True),
    (UMAP + ["--plot", "p.svg", "--plot", "p.svg"], True),
    (UMAP + ["--labels", "labels.svg", "--plot", "labels.svg"], True),
    (["umap", "in.npy", "--transform", "m.umap", "-o", "m.umap"], True),
    (["grpo", "in.jsonl", "-o", "x", "--losses", "x"], True),
    (["grpo", "in.jsonl", "-o", "x.json", "--gradients", "g.npy", "--losses", "./g.npy"], True),
    (["rubric", "in.jsonl", "--rubric", "rubric.npy", "--rewards", "x.npy", "-o", "x.npy"], True),
    (["softmax", "in.npy", "-o", "in.npy"], False),
    (["softmax", "in.npy", "-o", "./in.npy"], False),
]


def writable(words):
    """The names among the words that are written."""
    return [w for before, w in zip(words, words[1:]) if before in
            ("-o", "--save-model", "--plot", "--losses", "--gradients", "--rewards")]


def replaced(words, name, other):
    return [other if w == name else w for w in words]


def at_place(name, case, data=None):
    """Where a name's file was, another thing: the case without the file and all below it."""
    case.files = {n: d for n, d in case.files.items() if n != name and not n.startswith(name + "/")}
    if data is not None:
        case.files[name] = data


DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/proc/self/mem"]


def input_case(rng, words, name, kind):
    files = good_files(rng)
    files["m.umap"] = umap_model.Map(rng).build()
    case = Case("%s: %s as %s" % (words[0], name, kind), list(words), files, outputs=writable(words))
    data = files.get(name, b"x")
    other_name = {"below a file": "text/x", "a long name": "x" * 5000, "no name": ""}
    links = {**{device: device for device in DEVICES}, "a loop of links": name.split("/")[-1], "a link to nothing": "nothing"}
    if kind == "an odd name":
        other_name[kind] = rng.choice(mutate.NAMES[:7]) + (name if "/" not in name else "")
    if kind in other_name:
        case.words = replaced(words, name, other_name[kind])
        return case
    if kind == "forbidden":
        if name not in files and name != "model":
            case.files[name] = data
        case.read_only.append(name)
        return case
    at_place(name, case, b"" if kind == "empty" else None)
    if kind == "folder":
        case.folders.append(name)
    elif kind in links:
        case.links[name] = links[kind]
    elif kind == "a link" and name != "model":
        case.files["real"] = data
        case.links[name] = "../real" if "/" in name else "real"
    elif kind == "a FIFO with a writer":
        case.fifos[name] = data
    elif kind == "a FIFO with garbage":
        case.fifos[name] = rng.randbytes(300)
    elif kind == "a FIFO without a writer":
        # Those but a model read a pipe as they read a file; what is not written is waited for, as every program does.
        case.fifos[name] = None if name == "model" or name.startswith("model/") else b""
    return case


INPUT_KINDS = ["missing", "empty", "folder", *DEVICES, "a loop of links", "a link to nothing",
               "a link", "below a file", "a long name", "an odd name", "no name", "a FIFO with a writer", "a FIFO with garbage",
               "a FIFO without a writer", "forbidden"]
OUTPUT_KINDS = ["a folder", "/dev/full", "/dev/null", "below a file", "in no folder", "a link", "a link to nothing", "a loop of links", "a full disk",
                "a FIFO", "a long name", "no name", "forbidden", "an odd name"]


def output_case(rng, words, name, kind):
    case = Case("%s: %s as %s" % (words[0], name, kind), list(words), good_files(rng), outputs=writable(words))
    case.must_fail = kind in ("a folder", "/dev/full", "below a file", "in no folder", "a full disk", "a long name")
    other_name = {"below a file": "text/x" + name, "in no folder": "nowhere/" + name, "no name": "", "forbidden": "closed/" + name}
    links = {"/dev/full": "/dev/full", "/dev/null": "/dev/null", "a link": "real", "a link to nothing": "elsewhere/real", "a loop of links": name}
    if kind == "a long name":
        other_name[kind] = "x" * rng.choice([300, 300, 5000]) + name[-5:]
    elif kind == "an odd name":
        other_name[kind] = rng.choice(mutate.NAMES[:7]) + name
        case.outputs.append(other_name[kind])
    if kind in other_name:
        case.words = replaced(words, name, other_name[kind])
    if kind in links:
        case.links[name] = links[kind]
    if kind == "a link":
        case.outputs.append("real")
    elif kind == "a folder":
        case.folders.append(name)
    elif kind == "a full disk":
        case.file_size = 16
    elif kind == "a FIFO":
        case.fifos[name] = b""
        case.drained.append(name)
    elif kind == "forbidden":
        case.folders.append("closed")
        case.read_only.append("closed")
    return case


def same_case(rng, words, must_fail):
    files = good_files(rng)
    files["m.umap"] = umap_model.Map(rng).build()
    files["labels.svg"] = files["labels.txt"]
    case = Case("%s: one file twice" % words[0], list(words), files, outputs=writable(words), must_fail=must_fail)
    case.outputs = [o[2:] if o.startswith("./") else o for o in case.outputs]
    return case


ALL = [(input_case, words, name, kind) for words, name in INPUTS for kind in INPUT_KINDS] + \
    [(output_case, words, name, kind) for words, name in OUTPUTS for kind in OUTPUT_KINDS] + \
    [(same_case, words, must_fail) for words, must_fail in SAME]
STEP = 331  # no divisor of the number of cases: so few inputs meet every kind


def good(rng):
    words, name = rng.choice(INPUTS[:21] + INPUTS[23:])  # but the index, which is no part of the good model
    files = good_files(rng)
    files["m.umap"] = umap_model.Map(rng).build()
    return Case("good: %s" % " ".join(words), list(words), files, outputs=writable(words))


def make(rng, index):
    maker, *arguments = ALL[index * STEP % len(ALL)]
    return maker(rng, *arguments)
