# Archives of 60 kB that unpack to 60 MB, and would take ten times that as numbers: sizes are compared first.
limit_or_skip 400000
make_archives <<'END'
zeros = bytes(60_000_000)
archive("bomb.npz", data=npy("|b1", (60_000_000,), zeros))
archive("filled.npz", data=npy("|b1", (60_000_000,), zeros), indices=npy("|u1", (60_000_000,), zeros),
        shape=npy("<i8", (2,), struct.pack("<2q", 40, 2_000_000)))
archive("crowded.npz", data=npy("|b1", (60_000_000,), zeros), indices=npy("|u1", (60_000_000,), zeros))
archive("behind.npz", data=npy("<f8", (80,), struct.pack("<81d", *[1.0] * 81)))
archive("bools.npz", indptr=npy("|b1", (41,), bytes(41)))
END
for name in bomb filled crowded behind bools; do
    run_line "ulimit -v 400000; napier umap $name.npz -o out.npy -j 1" 2>&1 | sed 's/more than [0-9]*/more than N/'
done
