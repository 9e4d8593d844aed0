"""What mutations of all formats share: numbers at limits, damage to bytes, and changes of a JSON tree."""

import json
import struct

# Whole numbers where integer types end, and where products of sizes wrap.
LIMITS = [0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 1023, 1024, 65535, 65536, 2**24, 2**30, 2**31 - 1, 2**31, 2**31 + 1,
          2**32 - 1, 2**32, 2**32 + 1, 2**40, 2**52, 2**53, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64]
NEGATIVE = [-1, -2, -128, -(2**31), -(2**31) - 1, -(2**63), -(2**63) - 1]
DOUBLES = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, 1e-38, 1e6, 1e30, 3e38, 1e39, 1e308, float("inf"), -float("inf"),
           float("nan"), 2.0**31, 2.0**53, 2.0**63, 2.0**64, -(2.0**63)]
NUMBER_TEXTS = ["0", "-0", "1", "-1", "0.5", "1e400", "-1e400", "1e-400", "nan", "NaN", "-nan", "inf", "Infinity",
                "-inf", "1e", "e1", ".", "-", "+", "+1", "1.", ".5", "01", "0x10", "1_000", "1,5", " 1", "1 ", "1\t",
                "1\x00", "1 2", "1e+999999999999", "9" * 400, "0." + "1" * 400, "1e-999999999999", "\u0661", "\uff11",
                "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
                "18446744073709551616", "None", "null", "true", ""]
# What must not reach a terminal as it is, and what is no UTF-8.
CONTROLS = ["\x1b[31mred", "\x1b]0;title\x07", "a\rb", "a\nnapier: b", "\x08\x08", "\x7f", "\x00", "\u009b31m", "\u202e"]
NO_UTF8 = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80", b"\xf8\x88\x80\x80\x80"]
NAMES = ["\x1b[31mred", "new\nline", "bell\x07", "tab\ta", "quote'\"", "%s%n%d", "\u202eabc", "-"]


def file_name(rng, name):
    """Usually the name; sometimes with what must not reach a terminal in front of it."""
    return rng.choice(NAMES[:7]) + name if rng.random() < 0.06 else name


def number(rng):
    return rng.choice(LIMITS + NEGATIVE)


# ---- Bytes ---------------------------------------------------------------------------------------------------------


def flip(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def truncate(rng, data):
    return data[: rng.randrange(len(data) + 1)]


def overwrite(rng, data):
    """A number at a limit, in a place and a width that sizes like."""
    width = rng.choice([1, 2, 4, 8])
    value = (number(rng) & (2 ** (8 * width) - 1)).to_bytes(width, rng.choice(["little", "little", "big"]))
    at = rng.randrange(max(1, len(data) - width))
    return data[:at] + value + data[at + width :]


def remove(rng, data):
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice([1, 2, 4, 8, 64]) :]


def repeat(rng, data):
    at = rng.randrange(len(data) + 1)
    piece = data[at : at + rng.choice([1, 4, 16, 100])]
    return data[:at] + piece * rng.choice([2, 3, 50]) + data[at:]


def insert(rng, data):
    at = rng.randrange(len(data) + 1)
    piece = rng.choice([lambda: rng.choice(NO_UTF8), lambda: rng.choice(CONTROLS).encode(),
                        lambda: bytes([rng.randrange(256)]) * rng.choice([1, 3, 1000]), lambda: rng.randbytes(rng.choice([1, 8, 100]))])
    return data[:at] + piece() + data[at:]


def extend(rng, data):
    return data + rng.choice([b"\0", b"\n", data, bytes(1000), b"\xff" * 100])


DAMAGE = [flip, truncate, overwrite, remove, repeat, insert, extend]


def damage(rng, data):
    """Returns what was done, and the bytes after it."""
    how = rng.choice(DAMAGE)
    return how.__name__, how(rng, data)


def damaged(rng, data):
    """A few damages."""
    for _ in range(rng.randint(1, 3)):
        data = damage(rng, data)[1]
    return data


def checksum(data):
    """FNV-1a, 64 bits: what maps, optimizers and states end with."""
    value = 14695981039346656037
    for byte in data:
        value = ((value ^ byte) * 1099511628211) & (2**64 - 1)
    return struct.pack("<Q", value)


# ---- JSON ----------------------------------------------------------------------------------------------------------


class Pairs(list):
    """An object as its members in order, so that a key can stand in it twice."""


class Raw(str):
    """Text that is written as it is: what no JSON library would write."""


def read_json(text):
    return json.loads(text, object_pairs_hook=Pairs)


def write_json(value):
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ", ".join(write_json(k) + ": " + write_json(v) for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(write_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def json_bytes(value):
    return write_json(value).encode("utf-8", "surrogatepass")


def slots(value, found=None):
    """Every place of a tree that can be changed: (container, index)."""
    found = [] if found is None else found
    if isinstance(value, list):
        for i, item in enumerate(value):
            found.append((value, i))
            slots(item[1] if isinstance(value, Pairs) else item, found)
    return found


def get(slot):
    container, i = slot
    return container[i][1] if isinstance(container, Pairs) else container[i]


def put(slot, value):
    container, i = slot
    container[i] = (container[i][0], value) if isinstance(container, Pairs) else value


def nested(rng):
    """Deeper than a parser may recurse, closed or not, in lists or in objects."""
    depth = rng.choice([3, 50, 999, 1000, 1001, 20000])
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}")])
    return Raw(opening * depth + "1" + (closing * depth if rng.random() < 0.7 else ""))


def odd_text(rng):
    return rng.choice([
        lambda: "",
        lambda: "x" * rng.choice([63, 64, 1000, 70000]),
        lambda: Raw(rng.choice(['"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\\u12"', '"\\x"', '"\\"', '"', '"a\nb"', "''"])),
        lambda: rng.choice(CONTROLS),
        lambda: "\u0130\ufb03\u1e9e\u0301" * rng.choice([1, 100]),
        lambda: rng.choice(["../x", "/etc/passwd", "..", ".", "%n%s", "a/b"]),
        lambda: rng.choice(NUMBER_TEXTS),
        lambda: "\u0301" * rng.choice([1, 30, 3000])])()


def odd_value(rng):
    return rng.choice([
        lambda: number(rng),
        lambda: number(rng),
        lambda: Raw(rng.choice([t for t in NUMBER_TEXTS if t] + ["1e999", "-", "NaN", "Infinity", "-Infinity"])),
        lambda: odd_text(rng),
        lambda: nested(rng),
        lambda: rng.choice([None, True, False]),
        lambda: rng.choice([[], Pairs(), [[]], [Pairs()], Pairs([("", [])])]),
        lambda: [rng.choice([0, 1, 0.5, "a", None])] * rng.choice([1, 2, 3, 100, 5000]),
        lambda: rng.choice([0.5, -0.5, 1e300, 1e-300, 1.0000000001, 0.1])])()


def change_tree(rng, root):
    """One change somewhere in a tree, in place; returns what it was."""
    places = slots(root)
    if not places:
        return "nothing"
    place = rng.choice(places)
    container, i = place
    kind = rng.randrange(10)
    if kind < 4:
        old = get(place)
        if isinstance(old, (int, float)) and not isinstance(old, bool) and rng.random() < 0.6:
            put(place, number(rng) if rng.random() < 0.7 else old + rng.choice([-1, 1]))
        else:
            put(place, odd_value(rng))
        return "another value"
    if kind == 4:
        del container[i]
        return "a member less"
    if kind == 5:
        item = container[i]
        twin = (item[0], odd_value(rng)) if isinstance(container, Pairs) and rng.random() < 0.6 else item
        container.insert(rng.choice([i, i + 1, len(container)]), twin)
        return "a member twice"
    if kind == 6:
        other = rng.choice(places)
        value = get(other)
        inside = [get(p) for p in slots(value)] if isinstance(value, list) else []
        if not any(v is container for v in inside) and value is not container:
            put(place, value)
        return "a value from elsewhere"
    if kind == 7 and isinstance(container, Pairs):
        container[i] = (rng.choice([odd_text(rng), container[i][0] + " ", container[i][0].upper()]), container[i][1])
        return "another key"
    if kind == 8:
        most = 10**6 // (len(write_json(get(place))) + 1)  # of a megabyte there is no need for two thousand
        container.extend([container[i]] * min(rng.choice([1, 10, 2000]), max(1, most)))
        return "a member many times"
    rng.shuffle(container)
    return "another order"


def change_json(rng, text, most=3):
    """A few changes of a JSON text; returns what they were and the bytes."""
    root = [read_json(text)] if isinstance(text, str) else [text]
    told = [change_tree(rng, root) for _ in range(rng.randint(1, most))]
    data = b" ".join(map(json_bytes, root))
    if rng.random() < 0.25:
        how, data = damage(rng, data)
        told.append(how)
    return ", ".join(told), data
