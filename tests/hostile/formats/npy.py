""".npy files: the magic, the version, the length of the header, the header, and the elements behind it."""

import struct

import mutate
from case import Case

SHARE = 240

DESCRS = ["<f4", "<f8", "<f2", ">f4", ">f8", "=f4", "|b1", "|i1", "|u1", "<i2", "<i4", "<i8", "<u8", ">u2", "<V2", "|V2",
          "bfloat16"]
ODD_DESCRS = ["O", "|O", "<U5", "|S3", "<c8", "<f16", "<f3", "<f0", "<f", "f4", "", "<", "<f44", "<m8[s]", "|f4", "|V0",
              "<i:", "<f\x1b[31m", "x" * 300, "<i\xff"]
SHAPES = ["(0,)", "(0, 0)", "(0, 9223372036854775807)", "(9223372036854775807, 2)", "(4294967296, 4294967296)",
          "(2147483648, 2147483648, 4)", "(1, 0, 9223372036854775807)", "(-1, 3)", "(3, -4)", "()", "(,)", "(3)", "3",
          "[3, 4]", "(3 4)", "(3,,4)", "((3, 4),)", "(3, 4", "3, 4)", "(3L, 4L)", "(True, 3)", "(3.0, 4)", "(0x3, 4)",
          "(1_0,)", "(" + "1, " * 32 + ")", "(" + "1, " * 33 + ")", "(" + "(" * 500 + ")" * 500 + ")", "(\x1b[2J3,)",
          "(99999999999999999999,)", "(12,)", "(4, 3)", "(2, 2, 3)", "(1, 12)", "(12, 1)", "(1000000000,)",
          "(40000000000,)", "(200000, 200000)", "(1, 40000000000)", "(3, 1000000000)"]


def header(descr="<f4", fortran="False", shape="(3, 4)"):
    return "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, shape)


def build(text, data, version=(1, 0), length=None, magic=b"\x93NUMPY"):
    """The bytes; `length` is what the file says of its header, by default the truth."""
    body = text.encode("latin-1", "replace")
    wide = version[0] != 1
    body += b" " * (-(len(body) + (13 if wide else 11)) % 16) + b"\n"
    said = len(body) if length is None else length
    return magic + bytes(version) + struct.pack("<I" if wide else "<H", said & (0xFFFFFFFF if wide else 0xFFFF)) + body + data


def floats(rng, count):
    return struct.pack("<%df" % count, *(rng.uniform(-4, 4) for _ in range(count)))


def table(rng, rows=12, cols=3):
    """A good file of small numbers."""
    return build(header(shape="(%d, %d)" % (rows, cols)), floats(rng, rows * cols))


# ---- Mutations: each returns the file -------------------------------------------------------------------------------


def odd_descr(rng):
    return build(header(descr=rng.choice(ODD_DESCRS)), floats(rng, 12))


def good_descr(rng):
    """Every dtype, with elements of any bits, in any version."""
    descr = rng.choice(DESCRS)
    size = {"b": 2, "V": 2}.get(descr[0] if descr[0] == "b" else descr[1], 0) or int(descr[-1])
    size = 1 if descr == "|b1" else size
    return build(header(descr=descr, fortran=rng.choice(["True", "False"])), rng.randbytes(12 * size),
                 version=rng.choice([(1, 0), (2, 0), (3, 0)]))


def odd_shape(rng):
    return build(header(descr=rng.choice(DESCRS), fortran=rng.choice(["True", "False"]), shape=rng.choice(SHAPES)),
                 rng.randbytes(rng.choice([0, 12, 48, 96])))


def odd_numbers(rng):
    dims = ", ".join(str(mutate.number(rng) if rng.random() < 0.5 else rng.randint(0, 4)) for _ in range(rng.randint(1, 5)))
    return build(header(fortran=rng.choice(["True", "False"]), shape="(%s,)" % dims), floats(rng, 12))


def odd_order(rng):
    return build(header(fortran=rng.choice(["true", "1", "None", "'True'", "TrueFalse", "", "(True)"])), floats(rng, 12))


def odd_dict(rng):
    good = header()
    return build(rng.choice([
        good[:-1], good[1:], "", "{}", "{" * 1000, good * 2, good.replace("'", '"'), good.replace("'descr'", "'Descr'"),
        "{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (3, 4)}",
        "{'descr': '<f4', 'shape': (3, 4)}", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), 'x': 1}",
        "{'descr': [('a', '<f4'), ('b', '<f4')], 'fortran_order': False, 'shape': (6,)}", good + "\0" * 60,
        good.replace(" ", "\t"), good.replace("shape", "sha\\x70e"), "{'descr': '<f4" + "a" * 5000, good + "; import os",
        " " * 60000 + good, good + " " * 60000]), floats(rng, 12))


def odd_length(rng):
    """The header's length is not its length."""
    return build(header(), floats(rng, 12), version=rng.choice([(1, 0), (2, 0)]),
                 length=rng.choice(mutate.LIMITS + [10, 58, 78, 117, 119]))


def odd_version(rng):
    return build(header(), floats(rng, 12), version=rng.choice([(0, 0), (1, 1), (4, 0), (255, 255), (2, 7)]))


def odd_magic(rng):
    return build(header(), floats(rng, 12), magic=rng.choice([b"\x93NUMPX", b"\x93numpy", b"PK\3\4ab", b"NUMPY\x93"]))


def too_short(rng):
    data = table(rng)
    return data[: rng.choice([0, 1, 5, 6, 7, 8, 9, 10, 11, 12, 60, 127, 128, 129, len(data) - 1])]


def too_long(rng):
    return table(rng) + bytes(rng.choice([1, 4, 100000]))


def damaged(rng):
    return mutate.damaged(rng, table(rng))


def odd_values(rng):
    values = [rng.choice(mutate.DOUBLES) for _ in range(12)]
    return build(header(descr="<f8"), struct.pack("<12d", *values))


MUTATIONS = [odd_descr, good_descr, odd_shape, odd_numbers, odd_order, odd_dict, odd_length, odd_version, odd_magic,
             too_short, too_long, damaged, odd_values, odd_shape, odd_shape]


# ---- Commands: every one that reads arrays --------------------------------------------------------------------------


def softmax_words(rng, name):
    words = [rng.choice(["softmax", "log-softmax", "logsumexp", "sparsemax"]), name]
    if rng.random() < 0.5:
        words += ["--axis", rng.choice(["0", "-1", "1", "all", "-2", "31", "-33"])]
    if rng.random() < 0.3:
        words += ["--dtype", rng.choice(["f32", "f16", "bf16", "f64"])]
    if rng.random() < 0.3:
        words += ["--buffer", rng.choice(["0", "1", "64", "4K", "1M"])]
    if rng.random() < 0.2:
        words += ["--input-format", rng.choice(["npy", "csv", "tsv"])]
    return words


def case_of(rng, what, data, name="in.npy", readers=9):
    """A case of an array file for one of the commands that read such files."""
    name = mutate.file_name(rng, name)
    out = rng.choice(["out.npy", "out.csv", "out.tsv"])
    kind = rng.randrange(readers)
    if kind < 4:
        piped = rng.random() < 0.35
        words = softmax_words(rng, "-" if piped else name)
        if rng.random() < 0.8:
            return Case(what, words + ["-o", out], {} if piped else {name: data}, data if piped else b"", [out])
        return Case(what, words, {} if piped else {name: data}, data if piped else b"")
    good = table(rng)
    files = {name: data, "good.npy": good}
    if kind == 4:
        words = ["umap", name, "--n-epochs", "2", "--n-neighbors", "3", "-o", out, "--save-model", "m.umap"]
        return Case(what, words, files, outputs=[out, "m.umap"])
    if kind == 5:
        option = rng.choice(["--labels", "--target", "--hover", "--init"])
        words = ["umap", "good.npy", "--n-epochs", "2", "--n-neighbors", "3", option, name, "--plot", "p.html", "-o", out]
        return Case(what, words, files, outputs=[out, "p.html"])
    if kind == 6:
        option = rng.choice(["--logprobs", "--old", "--ref", "--advantages", "--mask", "--entropies", "--offsets", "--sampler"])
        words = ["grpo", "--logprobs", "good.npy", "--advantages", "good.npy", option, name, "-o", "out.json", "--losses", out]
        return Case(what, words, files, outputs=["out.json", out])
    if kind == 7:
        words = ["kl", "--logits", name, "--ref-logits", rng.choice([name, "good.npy"]), "-o", out]
        return Case(what, words, files, outputs=[out])
    option = rng.choice(["--rubric", "--weights", "--token-ids", "--logprobs"])
    words = ["rubric", "--logprobs", "good.npy", "--token-ids", "good.npy", "--rubric", "good.npy", option, name, "-o", out]
    return Case(what, words, files, outputs=[out])


def good(rng):
    return Case("good", ["softmax", "in.npy", "-o", "out.npy"], {"in.npy": table(rng)}, outputs=["out.npy"])


def make(rng, index):
    how = MUTATIONS[index % len(MUTATIONS)]
    return case_of(rng, how.__name__, how(rng))
