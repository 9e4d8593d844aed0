# Sparse matrices as SciPy writes them, compressed or not; errors name what is wrong with others.
make_archives <<'END'
archive("packed.npz")
archive("stored.npz", zipfile.ZIP_STORED)
archive("coo.npz", format=npy("|S3", (), b"coo"))
columns = [[i for i in range(40) if c in (i % 5, 5 + i % 3)] for c in range(8)]
starts = [sum(map(len, columns[:c])) for c in range(9)]
archive("csc.npz", format=npy("|S3", (), b"csc"), data=npy("<f8", (80,), struct.pack("<80d", *[1] * 80)),
        indices=npy("<i4", (80,), struct.pack("<80i", *sum(columns, []))), indptr=npy("<i4", (9,), struct.pack("<9i", *starts)))
archive("wide.npz", format=npy("<U3", (), "csr".encode("utf-32-le")))
archive("no-data.npz", data=None)
archive("short.npz", indices=npy("<i4", (79,), struct.pack("<79i", *[0] * 79)))
archive("far.npz", indices=npy("<i4", (80,), struct.pack("<80i", *[8] * 80)))
archive("rows.npz", indptr=npy("<i4", (41,), struct.pack("<41i", *[0, 80] + [4] * 38 + [80])))
archive("cut.npz", data=npy("<f8", (80,), b""))
archive("shape.npz", shape=npy("<i8", (3,), struct.pack("<3q", 4, 5, 2)))
archive("moved.npz", data=npy("<f8", (80,), struct.pack("<80d", *[1e9 + i % 7 for i in range(80)])))
for name, size in (("small", 1e-60), ("large", 1e60)):
    archive(name + ".npz", data=npy("<f8", (80,), struct.pack("<80d", *[(1 + i % 7) * size for i in range(80)])))
open("long.npy", "wb").write(npy("<i8", (40, 2), struct.pack("<80q", *[17 * 10**17 + i * i * (i % 2) for i in range(80)])))
whole = open("packed.npz", "rb").read()
open("half.npz", "wb").write(whole[: len(whole) // 2])
for at in (60, 100):
    open("flipped%d.npz" % at, "wb").write(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
open("empty.npz", "wb")
with open("table.csv", "w") as f:
    for i in range(40):
        f.write(",".join(str(int(c in (i % 5, 5 + i % 3))) for c in range(8)) + "\n")
END
for name in packed stored wide csc; do
    run napier umap $name.npz -o $name.npy --n-epochs 20
done
cmp packed.npy stored.npy
cmp packed.npy wide.npy
cmp packed.npy csc.npy
head -c 128 packed.npy | tail -c +11 | sed 's/ *$//'
for name in coo no-data short far rows cut shape half flipped60 flipped100 empty missing; do
    told napier umap $name.npz -o out.npy
done
told napier umap --embedding packed.npz --plot out.svg

# Values that lost their digits before the library gets them.
napier umap moved.npz --n-epochs 5 -o out.npy
napier umap moved.npz --metric jaccard --n-epochs 5 -o out.npy
napier umap long.npy --n-epochs 5 -o out.npy
for name in small large; do
    told napier umap $name.npz --n-epochs 5 -o out.npy
done
