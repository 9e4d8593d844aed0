#!/usr/bin/env python3
"""Writes src/lm/tokenizer/unicode_runs.h: what a tokenizer has to know of each code point.

The tables of Hugging Face `tokenizers` 0.23, so that ids do not depend on the Unicode version of a machine's libraries:
- classes (the kinds of letters, mark, number, space, punctuation, symbol) as in Unicode 16, which its regular expressions
  (Oniguruma) know, and apart from them the characters of which its own pre-tokenizers, Digits, Punctuation and Whitespace,
  think otherwise: they are asked;
- composition (NFC) as in Unicode 9, which its normalizer knows: code points that Unicode 9 has not are left alone.

A run is a code point and the flags from there to the next run. Needs unicodedata2 == 16.0.0 and tokenizers (PyPI), and perl,
which knows the version that each code point came with.

    tools/make_unicode_table.py > src/lm/tokenizer/unicode_runs.h
"""

import subprocess

import unicodedata2 as unicode
from tokenizers import pre_tokenizers

assert unicode.unidata_version == "16.0.0"
SURROGATES = range(0xD800, 0xE000)
(
    OTHER,
    JOINER,
    UPPER,
    LOWER,
    TITLE,
    MODIFIER,
    LETTER,
    MARK,
    MARK_POINT,
    DIGIT,
    NUMERAL,
    NUMBER,
    NUMBER_LATER,
    SPACE,
    CONNECTOR,
    POINT,
    POINT_LATER,
    SYMBOL,
    SYMBOL_LETTER,
    SYMBOL_POINT,
) = range(20)  # in the order of napier_char_class
ACTIVE, BARRIER = 32, 64
HANGUL = dict(l=range(0x1100, 0x1113), v=range(0x1161, 0x1176), t=range(0x11A8, 0x11C3), s=range(0xAC00, 0xD7A4))


def known_to_unicode_9():
    ask = r'for (0..0x10FFFF) { print "$_\n" if ($_ < 0xD800 || $_ > 0xDFFF) && chr($_) =~ /\p{Present_In: 9.0}/ }'
    return set(map(int, subprocess.run(["perl", "-e", ask], capture_output=True, text=True, check=True).stdout.split()))


def alone(pre_tokenizer):
    """The code points that a pre-tokenizer takes out of a word."""
    points = [c for c in range(0x110000) if c not in SURROGATES]
    return {c for c in points if len(pre_tokenizer.pre_tokenize_str("ab" + chr(c))) > 1}


def kind(c, points, numbers, others):
    category = unicode.category(chr(c))
    if category[0] == "Z" or c in range(9, 14) or c == 0x85:  # White_Space
        return SPACE
    same = {"Lu": UPPER, "Ll": LOWER, "Lt": TITLE, "Lm": MODIFIER, "Lo": LETTER, "Nd": DIGIT, "Nl": NUMERAL, "No": NUMBER, "Pc": CONNECTOR}
    if category in same:
        return same[category]
    if category[0] == "M":
        return MARK_POINT if c in points else MARK
    if category[0] == "P":
        return POINT if c in points else POINT_LATER
    if category[0] == "S":
        return SYMBOL_POINT if c in points else SYMBOL if c in others else SYMBOL_LETTER
    return NUMBER_LATER if c in numbers else OTHER if c in others else JOINER


def seconds(points):
    """Code points that may join with one before them."""
    found = set(HANGUL["v"]) | set(HANGUL["t"])
    for c in points:
        if c not in HANGUL["s"] and unicode.decomposition(chr(c))[:1] not in ("", "<"):
            found.update(map(ord, unicode.normalize("NFD", chr(c))[1:]))
    return found


def main():
    known = known_to_unicode_9()
    joining = seconds(known)
    asked = [alone(kind) for kind in (pre_tokenizers.Punctuation(), pre_tokenizers.Digits(), pre_tokenizers.Whitespace())]
    flags = []
    for c in range(0x110000):
        f = kind(c, *asked)
        if c not in known:
            f |= BARRIER
        elif c in joining or unicode.combining(chr(c)) or unicode.normalize("NFC", chr(c)) != chr(c):
            f |= ACTIVE
        flags.append(flags[-1] if c in SURROGATES else f)
    runs = [c << 8 | f for c, f in enumerate(flags) if c == 0 or f != flags[c - 1]]
    print("/* lm/tokenizer/unicode_runs.h - made by tools/make_unicode_table.py: code point << 8 | flags, up to the next run. */")
    print("/* clang-format off */")
    for i in range(0, len(runs), 12):
        print("".join("0x%x," % run for run in runs[i : i + 12]))


main()
