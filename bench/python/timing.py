"""What the scripts of this folder share: calls in turn, and rows of results."""

import argparse
import json
import time


def turns(calls, rounds, repeats=1, clock=time.perf_counter):
    """Seconds of each call in each round, after a round that warms up; every round begins with another call."""
    times = [[] for _ in calls]
    for r in range(-1, rounds):
        for i in ((r + k) % len(calls) for k in range(len(calls))):
            begin = clock()
            for _ in range(repeats):
                calls[i]()
            if r >= 0:
                times[i].append((clock() - begin) / repeats)
    return times


def least(calls, rounds, repeats=1, clock=time.perf_counter):
    return [min(found) for found in turns(calls, rounds, repeats, clock)]


def parser(text, rounds):
    found = argparse.ArgumentParser(description=text.split("\n")[0])
    found.add_argument("--json", help="add the rows to a file, one JSON object a line")
    found.add_argument("--rounds", type=int, default=rounds)
    return found


def add_rows(path, rows):
    if path:
        with open(path, "a", encoding="ascii") as file:
            for row in rows:
                print(json.dumps(row), file=file)
