# Archives of 60 kB that unpack to 60 MB, and would take ten times that as numbers: sizes are compared first.
limit_or_skip 400000
command -v python3 >/dev/null || skip "no python3 to make archives with"
cat >make.py <<'END'
import struct, sys, zipfile

def npy(descr, shape, elements):
    text = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + elements

def archive(name, packed=zipfile.ZIP_DEFLATED, **changed):
    # Point i is 1 in columns i % 5 and 5 + i % 3; every second row names the later column first.
    rows = 40
    columns = [c for i in range(rows) for c in ((i % 5, 5 + i % 3) if i % 2 else (5 + i % 3, i % 5))]
    members = {
        "indices": npy("<i4", (80,), struct.pack("<80i", *columns)),
        "indptr": npy("<i4", (41,), struct.pack("<41i", *range(0, 82, 2))),
        "format": npy("|S3", (), b"csr"),
        "shape": npy("<i8", (2,), struct.pack("<2q", rows, 8)),
        "data": npy("<f8", (80,), struct.pack("<80d", *[1.0] * 80)),
    }
    members.update(changed)
    with zipfile.ZipFile(name, "w", packed) as z:
        for member, content in members.items():
            if content is not None:
                with z.open(zipfile.ZipInfo(member + ".npy"), "w", force_zip64=True) if packed == 0 else z.open(member + ".npy", "w") as f:
                    f.write(content)

zeros = bytes(60_000_000)
archive("bomb.npz", data=npy("|b1", (60_000_000,), zeros))
archive("filled.npz", data=npy("|b1", (60_000_000,), zeros), indices=npy("|u1", (60_000_000,), zeros),
        shape=npy("<i8", (2,), struct.pack("<2q", 40, 2_000_000)))
archive("crowded.npz", data=npy("|b1", (60_000_000,), zeros), indices=npy("|u1", (60_000_000,), zeros))
archive("behind.npz", data=npy("<f8", (80,), struct.pack("<81d", *[1.0] * 81)))
archive("bools.npz", indptr=npy("|b1", (41,), bytes(41)))
END
python3 make.py || skip "python3 cannot make the archives"
for name in bomb filled crowded behind bools; do
    run_line "ulimit -v 400000; napier umap $name.npz -o out.npy -j 1" 2>&1 | sed 's/more than [0-9]*/more than N/'
done
