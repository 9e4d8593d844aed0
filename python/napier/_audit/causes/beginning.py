"""Another beginning: BOS missing or doubled, a prompt that was cut, or whose end differs. The reference with that prompt explains the
numbers; without it, tokens near the start are worst."""

from collections import Counter

import numpy as np

from ..case import Candidate

CAUSE = "beginning"


def _special(case):
    """Ids of BOS: of the config, or added by the tokenizer."""
    config = case.reference.config() or {}
    ids = config.get("bos_token_id")
    ids = [ids] if isinstance(ids, int) else list(ids or [])
    tokenizer = case.reference.model.tokenizer
    if tokenizer is not None:
        added = tokenizer.encode("a", add_special_tokens=True)
        plain = tokenizer.encode("a")
        ids += added[: max(0, len(added) - len(plain))]
    return list(dict.fromkeys(ids))


def _ends(case):
    """The last few ids that many prompts share, longest first: a generation prompt, a think block, a newline."""
    tails = Counter()
    for r in case.responses:
        for n in range(1, min(9, len(r.prompt))):
            tails[tuple(r.prompt[-n:])] += 1
    many = [t for t, count in tails.items() if count > 0.5 * len(case.responses)]
    return sorted(many, key=len)


def _starts(case):
    """The beginning that all prompts share: a system prompt."""
    prompts = [r.prompt for r in case.responses]
    if len({tuple(p) for p in prompts}) < 2:
        return []
    n = 0
    while all(len(p) > n + 1 for p in prompts) and len({p[n] for p in prompts}) == 1:
        n += 1
    return prompts[0][:n]


def candidates(case):
    s = case.state
    if s.beginning:
        return
    bos = _special(case)
    for i in bos:
        has = all(r.prompt[:1] == [i] for r in case.responses)
        says = f"the prompt begins with {'a second' if has else 'a'} BOS (id {i})"
        mend = "add BOS on one side only" if has else "add_special_tokens: this engine adds BOS, and the ids given here have none"
        yield _candidate(s, f"add:{i}", says, mend)
        if has:
            mend = "give the engine the prompt's ids, or add_special_tokens=True where the text has no BOS"
            yield _candidate(s, "drop:0,1", f"the prompt has no BOS (id {i})", mend)
    begun = bool(bos) and all(r.prompt[0] in bos for r in case.responses)
    shared = _starts(case)
    start, tokenizer = len(shared), case.reference.model.tokenizer
    messages = [] if tokenizer is None else [n for n, i in enumerate(shared) if n > 1 and tokenizer.is_special(i)][:8]
    for n in sorted({1, 2, start, *messages} - {0} if start or not bos else {2}):
        what = ", which all prompts share (BOS, a system prompt)" if n == start else ", a message" if n in messages else ""
        mend = "send the same messages to both, and compare the ids of the rendered prompts"
        if not (n == 1 and begun):
            yield _candidate(s, f"drop:0,{n}", f"the prompt lacks its first {_ids(n)}{what}", mend)
        if n > 1 and begun:
            yield _candidate(s, f"drop:1,{n}", f"the prompt lacks {_ids(n - 1)} after BOS{what}", mend)
    mend = "render the chat template with the same options on both sides (add_generation_prompt, thinking), and do not strip white space"
    ends = {len(end) for end in _ends(case)}
    for n in sorted(ends | {1, 2, 3}):
        shared = " (a generation prompt, a think block, a newline)" if n in ends else ""
        yield _candidate(s, f"short:{n}", f"the prompt lacks its last {_ids(n)}{shared}", mend)
    if tokenizer is not None:
        for name, text in (("newline", "\n"), ("space", " "), ("empty think block", "<think>\n\n</think>\n\n")):
            ids = ",".join(map(str, tokenizer.encode(text, continues=True)))
            yield _candidate(s, f"append:{ids}", f"the prompt has one more {name} at its end", mend)
    longest = max(len(r.prompt) for r in case.responses)
    for n in sorted({n for n in (16, 32, 64, 128, 256, 512, 1000, 1024, 2000, 2048, 4000, 4096) if n < longest} | _limits(case)):
        for side in ("last", "first"):
            yield _candidate(
                s, f"{side}:{n}", f"the prompt was cut to its {side} {n} ids", "raise max_prompt_length, or drop prompts that are longer"
            )
    config = case.reference.config() or {}
    pads = {i for i in (config.get("pad_token_id"), config.get("eos_token_id"), 0) if isinstance(i, int)}
    for i in pads if min(len(r.prompt) for r in case.responses) < longest else ():
        says = f"prompts were padded on the left (id {i}) up to the longest of {longest}, and the padding was attended to"
        yield _candidate(s, f"pad:{i},{longest}", says, "pass attention_mask, and positions that begin after the padding")


def _limits(case):
    """Lengths to which prompts may have been cut: those between the longest prompt without a residual and the shortest with one."""
    clean, cut = [], []
    for r, residual in zip(case.responses, case.residuals(case.state)):
        worse = np.nanmean(np.abs(residual)) > 4 * case.floors["bfloat16"] if np.isfinite(residual).any() else False
        (cut if worse else clean).append(len(r.prompt))
    if not clean or not cut or max(clean) >= min(cut):
        return set()
    low, high = max(clean), min(cut) - 1
    return {*range(low, high + 1)} if high - low < 4 else {low, high}


def _ids(n):
    return "id" if n == 1 else f"{n} ids"


def _candidate(state, beginning, says, mend):
    return Candidate(CAUSE, state._replace(beginning=beginning), says, mend, 0.05, few=True)
