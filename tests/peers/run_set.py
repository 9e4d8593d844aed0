"""Runs every function test_* of the files test_SET_*.py: run_set.py SET. Called by run.sh, which adds up the counts."""
import glob
import importlib
import os
import sys
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))


def run(name, test):
    """One test: 0 passed, 1 failed, 2 skipped. What it returns is a remark, such as the figures it compared."""
    begin = time.perf_counter()
    try:
        remark = test()
    except Exception as error:  # whatever it is, the others are to run
        if type(error).__name__ == "Skip":
            print(f"  skip  {name}: {error}", flush=True)
            return 2
        print(f"  FAIL  {name} ({time.perf_counter() - begin:.1f} s)")
        print("".join(f"        | {line}\n" for line in traceback.format_exc().splitlines()[-12:]), end="", flush=True)
        return 1
    took = time.perf_counter() - begin
    print(f"  ok    {name} ({took:.1f} s){': ' + remark if remark else ''}", flush=True)
    return 0


def main():
    warnings.filterwarnings("ignore")
    sys.path.insert(0, HERE)
    wanted, counts = sys.argv[1], [0, 0, 0]
    match = os.environ.get("MATCH", "")
    for path in sorted(glob.glob(os.path.join(HERE, f"test_{wanted}_*.py"))):
        module = importlib.import_module(os.path.basename(path)[:-3])
        for name, test in list(vars(module).items()):
            if name.startswith("test_") and callable(test) and match in name:
                counts[run(f"{module.__name__[5:]}: {name[5:].replace('_', ' ')}", test)] += 1
    with open(os.environ["NAPIER_PEERS_RESULT"], "w", encoding="ascii") as result:
        print(*counts, file=result)


if __name__ == "__main__":  # tests start processes, which import this file
    main()
