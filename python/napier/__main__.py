"""The program napier, which the wheel carries as a file: the script `napier` and `python -m napier` run it. `napier serve` and
`napier audit` are in Python."""

import os
import signal
import subprocess
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "napier.exe" if os.name == "nt" else "napier")


def main():
    if sys.argv[1:2] == ["serve"]:
        from ._serve.command import main as serve

        sys.exit(serve(sys.argv[2:]))
    if sys.argv[1:2] == ["audit"]:
        from ._audit.cli import main as audit

        sys.exit(audit(sys.argv[2:]))
    if not os.path.exists(PROGRAM):
        sys.exit("napier: this build of the Python package lies without the program; `pip install` of a wheel or of the sources has it")
    words = [PROGRAM, *sys.argv[1:]]
    if os.name != "nt":
        os.execv(PROGRAM, words)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which gets it too
    sys.exit(subprocess.call(words))


if __name__ == "__main__":
    main()
