""".npz files with SciPy's sparse rows: what the archive says of its members, how they are packed, and what is in them."""

import struct
import zlib

import mutate
from case import Case
from formats import npy

SHARE = 220


class Member:
    """One member of an archive; each field is what the archive says, and may be a lie. Zeros follow the data: piece by
    piece, so that this process stays small (what is measured of a child begins with its parent's memory)."""

    def __init__(self, name, data, packed=True, zeros=0):
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        self.name = name.encode("latin-1", "replace")
        self.data, self.crc, self.size = deflate.compress(data), zlib.crc32(data), len(data) + zeros
        while zeros > 0:
            piece = bytes(min(zeros, 1 << 16))
            self.data, self.crc, zeros = self.data + deflate.compress(piece), zlib.crc32(piece, self.crc), zeros - len(piece)
        self.data = self.data + deflate.flush() if packed else data
        self.method = 8 if packed else 0
        self.packed_size = len(self.data)
        self.flags, self.extra, self.offset = 0, b"", None

    def local(self):
        return struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, self.flags, self.method, 0, 33, self.crc & 0xFFFFFFFF,
                           self.packed_size & 0xFFFFFFFF, self.size & 0xFFFFFFFF, len(self.name), len(self.extra)) + \
            self.name + self.extra + self.data

    def entry(self, offset):
        offset = offset if self.offset is None else self.offset
        return struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, self.flags, self.method, 0, 33, self.crc & 0xFFFFFFFF,
                           self.packed_size & 0xFFFFFFFF, self.size & 0xFFFFFFFF, len(self.name), len(self.extra), 0, 0, 0,
                           0, offset & 0xFFFFFFFF) + self.name + self.extra


def archive(members, **said):
    """The bytes; `said` overrides what the end of the directory says: count, size, offset, comment, comment_size."""
    data, entries = b"", b""
    for m in members:
        entries += m.entry(len(data))
        data += m.local()
    comment = said.get("comment", b"")
    count = said.get("count", len(members)) & 0xFFFF
    end = struct.pack("<IHHHHIIH", 0x06054B50, said.get("disk", 0), 0, count, count, said.get("size", len(entries)) & 0xFFFFFFFF,
                      said.get("offset", len(data)) & 0xFFFFFFFF, said.get("comment_size", len(comment)) & 0xFFFF)
    return data + entries + end + comment


def array(descr, values, code, shape=None):
    return npy.build(npy.header(descr=descr, shape=shape or "(%d,)" % len(values)), struct.pack("<%d%s" % (len(values), code), *values))


def parts(rows=12, cols=4):
    """A good matrix: two values a row."""
    columns = [c for r in range(rows) for c in sorted({r % cols, (r * 3 + 1) % cols} | {(r + 2) % cols})]
    starts = [0]
    for r in range(rows):
        starts.append(starts[-1] + len({r % cols, (r * 3 + 1) % cols} | {(r + 2) % cols}))
    return {"format": npy.build(npy.header(descr="|S3", shape="()"), b"csr"),
            "shape": array("<i8", [rows, cols], "q"),
            "data": array("<f8", [1.0 + i % 7 for i in range(len(columns))], "d"),
            "indices": array("<i4", columns, "i"),
            "indptr": array("<i4", starts, "i")}


def members(contents, packed=True):
    return [data if isinstance(data, Member) else Member(name + ".npy", data, packed) for name, data in contents.items()]


# ---- Mutations -----------------------------------------------------------------------------------------------------


def sizes(rng):
    ms = members(parts(), rng.random() < 0.7)
    m = rng.choice(ms)
    which = rng.choice(["size", "packed_size"])
    setattr(m, which, rng.choice([mutate.number(rng), getattr(m, which) + rng.choice([-1, 1, 100, 10000])]))
    return archive(ms)


def fields(rng):
    ms = members(parts(), rng.random() < 0.7)
    m = rng.choice(ms)
    which = rng.choice(["crc", "method", "flags", "offset", "name", "extra"])
    setattr(m, which, {"crc": lambda: m.crc ^ 1, "method": lambda: rng.choice([0, 1, 6, 8, 9, 12, 14, 93, 99, 65535]),
                       "flags": lambda: rng.choice([1, 8, 0x41, 0x800, 0xFFFF]),
                       "offset": lambda: mutate.number(rng),
                       "name": lambda: rng.choice([b"", b"data.npy\0", b"../data.npy", b"\x1b[31m.npy", b"x" * 65535, b"DATA.NPY"]),
                       "extra": lambda: rng.choice([b"\1\0\x18\0" + b"\xff" * 24, bytes(65535), b"\1\0"])}[which]())
    return archive(ms)


def directory(rng):
    ms = members(parts())
    comment = rng.choice([b"", b"PK\5\6" + bytes(18), b"PK\5\6" * 1000, bytes(65535), b"PK\5\6" + b"\xff" * 18])
    key = rng.choice(["count", "size", "offset", "disk", "comment_size"])
    return archive(ms, **{key: mutate.number(rng) & 0xFFFF if key == "disk" else mutate.number(rng)}, comment=comment)


def names_twice(rng):
    contents = parts()
    ms = members(contents)
    name = rng.choice(list(contents))
    other = rng.choice(list(contents.values()))
    ms.insert(rng.randrange(len(ms) + 1), Member(name + ".npy", other))
    return archive(ms)


def missing(rng):
    ms = members(parts())
    del ms[rng.randrange(len(ms))]
    return archive(ms)


def overlapping(rng):
    """Two members that the directory puts in one place."""
    ms = members(parts())
    rng.choice(ms).offset = rng.choice([0, 30, 37, 100])
    return archive(ms)


def bomb(rng):
    """Zeros: a thousand to one. Counts, columns and values that do not fit one another, or all of one size."""
    contents = parts()
    count = rng.choice([10**6, 10**7, 3 * 10**7])
    for name in rng.sample(["data", "indices", "indptr"], rng.choice([1, 1, 3])):
        descr, size = rng.choice([("|b1", 1), ("<i4", 4), ("|i1", 1), ("<f2", 2)])
        head = npy.build(npy.header(descr=descr, shape="(%d,)" % (count // size)), b"")
        contents[name] = Member(name + ".npy", head, zeros=count // size * size)
    return archive(members(contents))


ELEMENT = 24  # bytes of memory for each element of a matrix, as docs/security.md says


def true_bomb(rng):
    """Zeros whose counts fit one another: one long row of equal columns, or many empty rows."""
    contents = parts()
    count = rng.choice([10**5, 10**6, 3 * 10**6])
    one_row = rng.random() < 0.6
    count = count if one_row else count // 1000  # a map of so many points: more of them take their time
    head = lambda descr, n: npy.build(npy.header(descr=descr, shape="(%d,)" % n), b"")
    contents["shape"] = array("<i8", [1, 2**31 - 2] if one_row else [count, 4], "q")
    contents["data"] = Member("data.npy", head("|i1", count if one_row else 0), zeros=count if one_row else 0)
    contents["indices"] = Member("indices.npy", head("|i1", count if one_row else 0), zeros=count if one_row else 0)
    contents["indptr"] = array("<i8", [0, count], "q") if one_row else Member("indptr.npy", head("|i1", count + 1), zeros=count + 1)
    return archive(members(contents)), ELEMENT * count


def flat_bomb(rng):
    """Quoted shapes that the bytes do not reach, and members that are not read."""
    contents = parts()
    contents[rng.choice(["data", "indices", "indptr", "shape"])] = npy.build(
        npy.header(descr=rng.choice(["|b1", "<f8", "<i4"]), shape=rng.choice(npy.SHAPES)), bytes(rng.choice([0, 24, 1000])))
    return archive(members(contents) + [Member("unread.npy", b"", zeros=10**7)])


def inner(rng):
    """A member that is a hostile .npy file."""
    contents = parts()
    how = npy.MUTATIONS[rng.randrange(len(npy.MUTATIONS))]
    contents[rng.choice(list(contents))] = how(rng)
    return archive(members(contents, rng.random() < 0.5))


def matrix(rng):
    """A sound archive with a matrix that cannot be."""
    contents = parts()
    kind = rng.randrange(6)
    if kind == 0:
        starts = list(range(0, 37, 3))
        starts[rng.randrange(13)] = rng.choice([-1, 36, 37, 0, 10**9])
        contents["indptr"] = array("<i4", starts, "i")
    elif kind == 1:
        columns = [i % 4 for i in range(36)]
        columns[rng.randrange(36)] = rng.choice([-1, 4, 5, 2**31 - 1, -(2**31), 3])
        contents["indices"] = array("<i4", columns, "i")
    elif kind == 2:
        contents["shape"] = array("<i8", [rng.choice([12, 0, -1, 2**31, 2**62, 13]), rng.choice([4, 0, -1, 2**31 - 2, 3])], "q")
    elif kind == 3:
        contents["indptr"] = array("<f8", [rng.choice(mutate.DOUBLES) for _ in range(13)], "d")
    elif kind == 4:
        contents["data"] = array("<f8", [rng.choice(mutate.DOUBLES) for _ in range(36)], "d")
    else:
        contents["format"] = npy.build(npy.header(descr=rng.choice(["|S3", "<U3"]), shape="()"),
                                       rng.choice([b"csc", b"coo", b"", b"cs", b"c\0\0\0s\0\0\0r\0\0\0", b"CSR", b"\x1b[3"]))
    return archive(members(contents))


def stream(rng):
    """Damage inside what is packed, the checksum left or made right for nothing."""
    ms = members(parts())
    m = rng.choice(ms)
    kind = rng.randrange(4)
    if kind == 0:
        m.data = mutate.damage(rng, m.data)[1]
    elif kind == 1:  # a stored block whose length is a lie
        m.data = b"\1" + struct.pack("<HH", rng.choice([0, 1, 65535, 100]), rng.choice([0, 65535, 65435])) + bytes(100)
    elif kind == 2:  # a block of tables that cannot be
        m.data = bytes([rng.choice([4, 5, 6, 7])]) + rng.randbytes(60)
    else:
        m.data = rng.randbytes(60)
    if rng.random() < 0.7:
        m.packed_size = len(m.data)
    return archive(ms)


def damaged(rng):
    return mutate.damaged(rng, archive(members(parts(), rng.random() < 0.5)))


def many(rng):
    """More members than are wanted."""
    ms = members(parts())
    return archive([Member("m%d.npy" % i, b"") for i in range(rng.choice([100, 3000]))] + ms)


MUTATIONS = [sizes, fields, directory, names_twice, missing, overlapping, bomb, flat_bomb, inner, matrix, stream, damaged, many,
             true_bomb, sizes, matrix]


def good(rng):
    return Case("good", ["umap", "in.npz", "--n-epochs", "2", "--n-neighbors", "3", "-o", "out.npy"],
                {"in.npz": archive(members(parts(), rng.random() < 0.5))}, outputs=["out.npy"])


def make(rng, index):
    how = MUTATIONS[index % len(MUTATIONS)]
    data, described = how(rng) if how is true_bomb else (how(rng), 0)
    name = mutate.file_name(rng, "in.npz")
    words = ["umap", name, "--n-epochs", "2", "--n-neighbors", "3", "-o", "out.npy"]
    return Case(how.__name__, words, {name: data}, outputs=["out.npy"], described=described)
