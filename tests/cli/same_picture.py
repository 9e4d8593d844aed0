"""Whether two PNG files of a plot have the same points: same_picture.py A B. Letters and their halos may differ, because
fonts do, so that only coloured pixels are compared, of which 9 in 10 must be equal."""
import struct
import sys
import zlib


def pixels(path):
    """(width, height, rows of RGB bytes) of a PNG of 8 bits a channel without interlacing."""
    with open(path, "rb") as file:
        data = file.read()
    at, packed, head = 8, b"", None
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            head = struct.unpack(">IIBBBBB", data[at + 8:at + 21])
        elif kind == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += size + 12
    width, height, depth, colours, _, _, interlaced = head
    if (depth, colours, interlaced) != (8, 2, 0):
        sys.exit(f"{path}: not a PNG of 8-bit RGB")
    return width, height, unfiltered(zlib.decompress(packed), 3 * width)


def unfiltered(raw, stride):
    rows, above = [], bytes(stride)
    for start in range(0, len(raw), stride + 1):
        kind, row = raw[start], bytearray(raw[start + 1:start + 1 + stride])
        if kind == 2:
            row = bytearray(a + b & 255 for a, b in zip(row, above))
        elif kind:
            for i in range(stride):
                a, c = (row[i - 3], above[i - 3]) if i >= 3 else (0, 0)
                b = above[i]
                row[i] = row[i] + (a if kind == 1 else (a + b) // 2 if kind == 3 else nearest(a, b, c)) & 255
        rows.append(bytes(row))
        above = row
    return rows


def nearest(a, b, c):
    """Paeth's predictor."""
    to_a, to_b, to_c = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    return a if to_a <= to_b and to_a <= to_c else b if to_b <= to_c else c


def coloured(picture):
    width, _, rows = picture
    found = {}
    for y, row in enumerate(rows):
        if row == b"\xff" * len(row):
            continue
        for x in range(width):
            pixel = row[3 * x:3 * x + 3]
            if max(pixel) - min(pixel) > 60:
                found[x, y] = pixel
    return found


def main():
    a, b = (coloured(pixels(path)) for path in sys.argv[1:3])
    same = sum(b.get(place) == pixel for place, pixel in a.items())
    if same < 0.9 * len(a.keys() | b.keys()):
        sys.exit(f"{same} of {len(a.keys() | b.keys())} coloured pixels are equal")


if __name__ == "__main__":
    main()
