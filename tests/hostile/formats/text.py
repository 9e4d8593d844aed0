"""CSV and TSV: numbers that are none, rows that do not fit, quotes, headers, bytes that are no text, long lines."""

import mutate
from case import Case
from formats import npy

SHARE = 150


def rows(rng, count=12, cols=3, separator=","):
    return [separator.join("%.3g" % rng.uniform(-4, 4) for _ in range(cols)) for _ in range(count)]


def join(lines, end="\n"):
    return end.join(lines).encode("utf-8", "surrogatepass") + end.encode()


def odd_number(rng):
    lines = rows(rng)
    at = rng.randrange(len(lines))
    fields = lines[at].split(",")
    fields[rng.randrange(len(fields))] = rng.choice(mutate.NUMBER_TEXTS)
    lines[at] = ",".join(fields)
    return join(lines)


def ragged(rng):
    lines = rows(rng)
    at = rng.randrange(len(lines))
    lines[at] = rng.choice([lines[at] + ",1", lines[at].rsplit(",", 1)[0], ",", ",,,,", lines[at] + "," * 5000, '"'])
    return join(lines)


def quoted(rng):
    lines = rows(rng)
    at = rng.randrange(len(lines))
    fields = lines[at].split(",")
    fields[0] = rng.choice(['"%s"', '"%s', '%s"', '""%s""', '"%s\n"', "'%s'", '"%s"x', '""', '"']) .replace("%s", fields[0])
    lines[at] = ",".join(fields)
    return join(lines)


def header(rng):
    first = rng.choice(["a,b,c", "a,b", "a,b,c,d", '"a","b","c"', '"a\nb",b,c', "#a,b,c", "\x1b[31ma,b,c", "a,b,c\r",
                        "x" * 100000 + ",b,c", "nan,a,b", ",,", "a\tb\tc", "\ufeffa,b,c"])
    return join([first] + rows(rng))


def line_ends(rng):
    return join(rows(rng), rng.choice(["\r\n", "\r", "\n\n", "\n\r", "\x0b", "\x85", "\u2028", "\0"]))


def bytes_of_no_text(rng):
    data = join(rows(rng))
    at = rng.randrange(len(data))
    return data[:at] + rng.choice(mutate.NO_UTF8 + [b"\0", b"\x1a", b"\x1b[2J"]) + data[at:]


def marks(rng):
    return rng.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb", b"\xef\xbb\xbf" * 2]) + join(rows(rng))


def long_lines(rng):
    return rng.choice([join(["1," * 50000 + "1"] * 2), b"1" * 500000, b'"' * 300001, join(["1"] * 50000), b"," * 200000])


def nothing(rng):
    return rng.choice([b"", b"\n", b"\n" * 10000, b" ", b"#", b"# a\n# b\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"a,b\n", b"\t\n"])


def damaged(rng):
    return mutate.damaged(rng, join(rows(rng, separator=rng.choice([",", "\t"]))))


MUTATIONS = [odd_number, ragged, quoted, header, line_ends, bytes_of_no_text, marks, long_lines, nothing, damaged, odd_number]


def good(rng):
    return Case("good", ["softmax", "in.csv", "-o", "out.npy"], {"in.csv": join(rows(rng))}, outputs=["out.npy"])


def make(rng, index):
    how = MUTATIONS[index % len(MUTATIONS)]
    data = how(rng)
    return npy.case_of(rng, how.__name__, data, name=rng.choice(["in.csv", "in.tsv", "in.txt", "in"]))
