"""Compares the lists of exported functions, cmake/*.map, with the public headers: symbols.py [ROOT].

Every function that a header declares stands in one node of its library's map, and nothing else does. The nodes of versions
before that of the headers are released: a name that came later, or went, would be a lie to the programs that are linked with
them. So each has a seal, a checksum of its names. Experimental functions, those of a GPU, have a node of the headers' version.
The last line counts."""
import re
import sys
import zlib
from pathlib import Path

DECLARED = re.compile(r"^NAPIER_(MPI_)?API +[^({]*?\b(napier_\w+)\(", re.M)
NODE = re.compile(r"^(?:/\* sealed: (\w+) \*/\n)?(NAPIER\w*)_(\d+)\.(\d+) \{\s*global:([^:}]*)(?:local: \*;\s*)?\}([^;]*);", re.M)


def seal(names):
    return f"{zlib.crc32(' '.join(names).encode()):08x}"


def mistakes(text, declared, version):
    """What is wrong with the text of a map, whose functions the headers of this version declare."""
    seen = {}
    for sealed, prefix, major, minor, body, before in NODE.findall(text):
        node = f"{prefix}_{major}.{minor}"
        names = re.findall(r"[^\s;]+", body)
        if names != sorted(names):
            yield f"{node}: the names are not sorted"
        if seen and not before.strip():
            yield f"{node}: does not name the node before it"
        experimental = prefix.endswith("EXPERIMENTAL")
        if (int(major), int(minor)) > version:
            yield f"{node}: the headers are of an earlier version"
        if experimental and (int(major), int(minor)) < version:
            yield f"{node}: is renamed with the headers' version"
        elif (int(major), int(minor)) < version and sealed != seal(names):
            yield (f"{node}: is released, and has other names than at its release" if sealed else
                   f"{node}: is released: put /* sealed: {seal(names)} */ on the line before it")
        for name in names:
            if name.startswith(("napier_cuda_", "napier_opencl_")) != experimental:
                yield f"{name}: the node of experimental functions has those of a GPU, and no others"
            if name in seen:
                yield f"{name}: in {seen[name]} and in {node}"
            seen[name] = node
    for name in sorted(declared - seen.keys()):
        yield f"{name}: in no node; a new function belongs to that of version {version[0]}.{version[1]}"
    for name in sorted(seen.keys() - declared):
        yield f"{name}: in {seen[name]}, but no header declares it"


def main(root):
    headers = "\n".join(path.read_text() for path in sorted((root / "include").rglob("*.h")))
    version = tuple(int(part) for part in re.search(r'VERSION_STRING "(\d+)\.(\d+)', headers).groups())
    declared = {"napier": set(), "napier_mpi": set()}
    for mpi, name in DECLARED.findall(headers):
        declared["napier_mpi" if mpi else "napier"].add(name)
    failed = 0
    for library, names in declared.items():
        found = list(mistakes((root / "cmake" / f"{library}.map").read_text(), names, version))
        print(*(f"cmake/{library}.map: {mistake}" for mistake in found), sep="\n", end="\n" if found else "")
        print(f"{'FAIL ' if found else 'ok   '} {library}: {len(names)} functions")
        failed += bool(found)
    print(f"{len(declared) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]))
