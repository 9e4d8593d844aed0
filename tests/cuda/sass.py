#!/usr/bin/env python3
"""sass.py CUBIN KERNEL NAME=FFMA:INSTRUCTION:MOST... - counts the instructions of a kernel's hot loops.

From nvdisasm's listing it prints, for each NAME, the instructions on the cheapest way once around a loop that has at least so many
FFMA and this instruction, and calls nothing: what an ordinary tile of 1024 elements takes a warp. Exit status 1: they are more than
MOST. NVDISASM names the program.
"""
import os
import re
import subprocess
import sys

UNREACHED = 1 << 30


def blocks_of(listing, kernel):
    """[(instructions, label or None)] of a kernel, in order; a block ends at each branch and before each label."""
    blocks, here, label, inside = [], [], None, False
    for line in listing.splitlines():
        section = re.match(r"\.text\.(\w+):", line)
        if section:
            inside = section.group(1) == kernel
            continue
        name = re.match(r"(\.L_\w+):", line)
        op = re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?);", line)
        if not inside or not (name or op):
            continue
        if name:
            if here or label:
                blocks.append((here, label))
            here, label = [], name.group(1)
            continue
        here.append(op.group(1))
        if re.search(r"\b(BRA|CALL|EXIT|RET)\b", here[-1]):
            blocks.append((here, label))
            here, label = [], None
    return blocks + ([(here, label)] if here else [])


def ways_on(blocks, at, i):
    """The blocks that may follow block i. BRA.DIV is taken only where a warp is torn."""
    last = blocks[i][0][-1] if blocks[i][0] else ""
    target = re.search(r"\bBRA\b.*`\((\.L_\w+)\)", last)
    if "CALL" in last or "EXIT" in last or "RET" in last:
        return []
    if not target:
        return [i + 1]
    if "BRA.DIV" in last:
        return [i + 1]
    return [at[target.group(1)]] + ([i + 1] if last.startswith("@") or re.search(r"BRA U?P\d", last) else [])


def cheapest(blocks, begin, end, at, wanted):
    """(instructions, blocks) of the cheapest way from begin to end with so many FFMA; the way only goes down."""
    fused = [sum("FFMA" in op for op in ops) for ops, _ in blocks]
    best = {(begin, min(fused[begin], wanted)): (len(blocks[begin][0]), [begin])}
    for i in range(begin, end):
        for had in sorted(key[1] for key in best if key[0] == i):
            cost, way = best[i, had]
            for j in ways_on(blocks, at, i):
                if not i < j <= end:
                    continue
                key = (j, min(wanted, had + fused[j]))
                if cost + len(blocks[j][0]) < best.get(key, (UNREACHED,))[0]:
                    best[key] = (cost + len(blocks[j][0]), way + [j])
    return best.get((end, wanted), (UNREACHED, []))


def main():
    cubin, kernel = sys.argv[1:3]
    listing = subprocess.run([os.environ.get("NVDISASM", "nvdisasm"), "-c", cubin], check=True, capture_output=True, text=True).stdout
    blocks = blocks_of(listing, kernel)
    at = {label: i for i, (_, label) in enumerate(blocks) if label}
    back = [(at[m.group(1)], i) for i, (ops, _) in enumerate(blocks) if ops
            for m in [re.search(r"\bBRA\b.*`\((\.L_\w+)\)", ops[-1])] if m and at.get(m.group(1), UNREACHED) <= i]
    bad = False
    for name, wanted, needed, most in (re.split("[=:]", word) for word in sys.argv[3:]):
        found = [cheapest(blocks, begin, end, at, int(wanted)) for begin, end in back]
        found = [(n, way) for n, way in found if any(needed in op for i in way for op in blocks[i][0])]
        count, way = min(found, default=(UNREACHED, []))
        if count == UNREACHED:
            print(f"{kernel} {name}: no loop with {wanted} FFMA")
            bad = True
            continue
        ops = [op for i in way for op in blocks[i][0]]
        stack = sum(op.split()[0].startswith("STL") or " STL" in op for op in ops)
        calls = sum("BSSY" in op for op in ops)
        print(f"{kernel} {name}: {count} instructions a tile (at most {most}), {count / 32:.1f} an element; {stack} stores to the stack, "
              f"{calls} places where a warp may part")
        bad |= count > int(most)
    return bad


if __name__ == "__main__":
    sys.exit(main())
