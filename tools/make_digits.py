"""Makes data/digits/{images,labels}.npy from the copy of the UCI digits that scikit-learn carries.

    pip download --no-deps scikit-learn
    python3 tools/make_digits.py scikit_learn-*.whl data/digits

Needs Python's standard library only; the result is the same bytes every time, and its digests are checked.
"""

import gzip
import hashlib
import struct
import sys
import zipfile
from pathlib import Path

MEMBER = "sklearn/datasets/data/digits.csv.gz"  # 1,797 lines of 64 grey values 0..16, then the digit
DIGESTS = {  # SHA-256
    "images.npy": "06622382efae4888481a982e2eb3ac77ac3e5b64ef0da69168b7943041fbebe0",
    "labels.npy": "03ec0343bca84958ae3df825f252a3680415fa07fccb1ed1125ed521c13169e5",
}


def npy(shape, elements):
    """The bytes of a version 1.0 .npy file of unsigned bytes."""
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("ascii") + bytes(elements)


def main(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        lines = gzip.decompress(archive.read(MEMBER)).decode("ascii").split()
    rows = [[round(float(field)) for field in line.split(",")] for line in lines]
    if len(rows) != 1797 or any(len(row) != 65 or max(row[:64]) > 16 or row[64] > 9 for row in rows):
        sys.exit(f"{wheel}: {MEMBER} is not the table this script knows")
    files = {
        "images.npy": npy((1797, 64), (pixel for row in rows for pixel in row[:64])),
        "labels.npy": npy((1797,), (row[64] for row in rows)),
    }
    for name, content in files.items():
        digest = hashlib.sha256(content).hexdigest()
        if digest != DIGESTS[name]:
            sys.exit(f"{name}: sha256 {digest}, expected {DIGESTS[name]}")
        (Path(folder) / name).write_bytes(content)
        print(f"{name}: {len(content)} bytes, sha256 {digest}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
