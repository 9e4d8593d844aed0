#!/usr/bin/env python3
"""tests/hostile/run.py - the hostile campaign: inputs that somebody might make to do harm, against the program.

    tests/hostile/run.py [--inputs N] [--seed S] [--format NAME] [--case I] [--program PATH] [...]

Each input starts from a good one and has one thing or a few changed: a length, an offset, a type, a name, the nesting, a
cut (formats/). The program should be built with sanitizers (tests/run_all.sh --only hostile does that). It must end within
10 seconds with status 0, 1 or 2, say on standard error what was wrong, in lines that begin with `napier:` and hold no control
characters, leave nothing behind and change no file where it failed, and use no more memory than docs/security.md says:
the limits are read there (with sanitizers twice as much).

The same seed gives the same inputs. A failure prints the command that repeats it and keeps the input in build/hostile.
The last line counts. Exit status: 0 nothing failed, 1 something did, 77 there is nothing to run.
"""

import argparse
import importlib
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)

from case import OLD  # noqa: E402

MIB = 1 << 20
FORMATS = ["npy", "npz", "text", "jsonl", "labels", "tokenizer", "conversation", "resume", "model", "gguf", "umap_model", "state", "csr", "options", "special"]
SECONDS = 10  # of the processors' time; and of the clock twice that, as the machine may be busy
GOOD = 4  # inputs of each format that must give a result
FILE_SIZE = 64 * MIB
MOST_MEMORY = 3072 * MIB  # ends a run at once, whatever the format's limit
MOST_AT_ONCE = 4096  # MiB; nothing that small files say may lead to such a request
SANITIZER = 99  # the exit status of a sanitizer that found something


# ---- What docs/security.md says -------------------------------------------------------------------------------------


def memory_limits():
    """Rows `| ... | 64 MiB + 20 x the input | `npy` |` of the page: {"npy": (64 MiB, 20)}."""
    limits = {}
    with open(os.path.join(ROOT, "docs", "security.md"), encoding="utf-8") as page:
        for line in page:
            found = re.search(r"\| (\d+) MiB \+ (\d+) x .*\| `(\w+)` \|$", line.strip())
            if found:
                limits[found[3]] = (int(found[1]) * MIB, int(found[2]))
    return limits


# ---- One run --------------------------------------------------------------------------------------------------------


def write_bytes(path, data):
    with open(path, "wb") as file:
        file.write(data)


def lay_out(case, folder):
    """Makes the case's files."""
    os.makedirs(folder)
    for name in case.folders:
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    for name in [*case.files, *case.links, *case.fifos]:
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
    for name, data in case.files.items():
        write_bytes(os.path.join(folder, name), data)
    for name, target in case.links.items():
        os.symlink(target, os.path.join(folder, name))
    for name in case.fifos:
        os.mkfifo(os.path.join(folder, name))


def old_outputs(case, rng):
    """Half of the outputs are there before the run, for a failure not to change them."""
    for name in case.outputs:
        there = [*case.files, *case.links, *case.fifos, *case.folders]
        taken = any(n == name or n.startswith(name + "/") for n in there)
        if not taken and "/" not in name and rng.random() < 0.5:
            case.files[name] = OLD


def look(folder):
    """What lies in a folder: {name: (kind, contents)}."""
    found = {}
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(at, name)
            mode = os.lstat(path).st_mode
            contents = None
            if stat.S_ISLNK(mode):
                contents = os.readlink(path)
            elif stat.S_ISREG(mode):
                with open(path, "rb") as file:
                    contents = file.read()
            found[os.path.relpath(path, folder)] = (stat.S_IFMT(mode), contents)
    return found


def start_helper(action, *arguments):
    """A process that does one thing with a FIFO; ended after the run."""
    pid = os.fork()
    if pid == 0:
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            action(*arguments)
        finally:
            os._exit(0)
    return pid


def write_into(path, data):
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    write_bytes(path, data)


def read_all_of(path):
    with open(path, "rb") as file:
        while file.read(1 << 16):
            pass


def standard_input(case, work):
    """A pipe where the bytes fit into one, else a file."""
    if len(case.stdin) <= 60000:
        out, into = os.pipe()
        os.write(into, case.stdin)
        os.close(into)
        return out
    path = os.path.join(work, "stdin")
    write_bytes(path, case.stdin)
    return os.open(path, os.O_RDONLY)


class Watch:
    """Ends a process that takes too long, or so much memory that the machine would suffer."""

    def __init__(self, pid):
        self.pid, self.why, self.start = pid, "", time.monotonic()
        signal.signal(signal.SIGALRM, self.look)
        signal.setitimer(signal.ITIMER_REAL, 0.25, 0.25)

    def look(self, *_):
        try:
            with open("/proc/%d/statm" % self.pid, encoding="ascii") as file:
                pages = int(file.read().split()[1])
        except OSError:  # it has just ended
            return
        if time.monotonic() - self.start > 2 * SECONDS:
            self.why = "no end within %d seconds" % SECONDS
        elif pages * resource.getpagesize() > MOST_MEMORY:
            self.why = "more than %d MiB of memory" % (MOST_MEMORY // MIB)
        if self.why:
            os.kill(self.pid, signal.SIGKILL)

    def stop(self):
        signal.setitimer(signal.ITIMER_REAL, 0)


def environment(work, threads):
    return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TMPDIR": os.path.join(work, "tmp"), "NAPIER_THREADS": threads,
            "HOME": work, "XDG_CACHE_HOME": os.path.join(work, "cache"),
            "ASAN_OPTIONS": "exitcode=%d:detect_leaks=1:quarantine_size_mb=4:allocator_may_return_null=1:"
                            "max_allocation_size_mb=%d:abort_on_error=0:malloc_context_size=8" % (SANITIZER, MOST_AT_ONCE),
            "UBSAN_OPTIONS": "exitcode=%d:halt_on_error=1:print_stacktrace=1" % SANITIZER,
            "LSAN_OPTIONS": "exitcode=%d:suppressions=%s:print_suppressions=0:use_tls=0" % (SANITIZER, os.path.join(ROOT, "tests", "lsan.supp"))}


def execute(program, case, work, address_space):
    """Runs the program in work/case. Returns status, standard error, seconds, bytes of memory, and why it was ended."""
    folder = os.path.join(work, "case")

    def limit():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        size = case.file_size or FILE_SIZE
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        if address_space:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        if case.read_only and os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)

    taken = standard_input(case, work)
    with open(os.path.join(work, "stdout"), "wb") as out, open(os.path.join(work, "stderr"), "wb") as err:
        start = time.monotonic()
        child = subprocess.Popen([program] + case.words, stdin=taken, stdout=out, stderr=err, cwd=folder, preexec_fn=limit,
                                 env=environment(work, "1" if address_space else "2"))
    os.close(taken)
    watch = Watch(child.pid)
    _, status, usage = os.wait4(child.pid, 0)
    watch.stop()
    child.returncode = os.waitstatus_to_exitcode(status)
    with open(os.path.join(work, "stderr"), "rb") as err:
        told = err.read(1 << 20)
    return child.returncode, told, time.monotonic() - start, usage.ru_maxrss * 1024, watch.why


# ---- What is wrong with a run ---------------------------------------------------------------------------------------


def wrong_ending(case, status, told, ended):
    if ended:
        return [ended]
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return ["more than %d seconds of the processors' time" % SECONDS]
    if re.search(rb"^==\d+==ERROR|runtime error:", told, re.MULTILINE) or status == SANITIZER:
        return ["a sanitizer report"]
    if b"Sanitizer failed to allocate" in told:
        return ["more than %d MiB asked for at once" % MOST_AT_ONCE]
    if status < 0:
        return ["ended by %s" % signal.Signals(-status).name]
    if case.program != "napier":
        return [] if status == 0 else ["exit status %d" % status]
    if status not in (0, 1, 2):
        return ["exit status %d" % status]
    if status == 0 and case.must_fail:
        return ["exit status 0 where it must fail"]
    return []


def wrong_message(case, status, told):
    if case.program != "napier":
        return []
    found = []
    if any(byte < 0x20 and byte != 0x0A or byte == 0x7F for byte in told) or b"\xc2\x9b" in told:
        found.append("control characters in a message")
    if status in (1, 2) and not told:
        found.append("it failed without a message")
    if any(not line.startswith((b"napier: ", b"Try 'napier")) for line in told.split(b"\n") if line):
        found.append("a message that does not begin with napier:")
    return found


def leads_nowhere(before, name):
    """A link to what is not there, or to itself: the result may take its place."""
    kind, target = before[name]
    return kind == stat.S_IFLNK and not target.startswith("/") and (target == name or target not in before)


def wrong_files(case, status, before, after):
    found = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if status != 0:
            found.append("it failed and %s %r" % ("left" if old is None else "removed" if new is None else "changed", name))
        elif new is None or name not in case.outputs and name not in case.links.values():
            found.append("%s %r, which is no output" % ("wrote" if old is None else "removed" if new is None else "changed", name))
        elif old is not None and old[0] != new[0] and not leads_nowhere(before, name):
            found.append("put another kind of file in place of %r" % name)
    return found


def wrong_contents(case, after, outputs):
    held = b"".join(after[n][1] for n in outputs if n in after and isinstance(after[n][1], bytes))
    return ["an output holds %r as it is" % text for text in case.never if text in held]


def forbid(case, work):
    """Everybody may use the case's folders, but for what it says nobody may."""
    for at, _, _ in os.walk(work):
        os.chmod(at, 0o777)
    for name in case.read_only:
        path = os.path.join(work, "case", name)
        os.chmod(path, 0o500 if os.path.isdir(path) else 0)


def run_case(case, work, programs, rng, address_space=0):
    """Returns what was wrong, with status, seconds and memory."""
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(os.path.join(work, "tmp"))
    old_outputs(case, rng)
    folder = os.path.join(work, "case")
    lay_out(case, folder)
    before = look(folder)
    fifos = [(name, os.path.join(folder, name), data) for name, data in case.fifos.items() if data is not None]
    helpers = [start_helper(read_all_of, path) if name in case.drained else start_helper(write_into, path, data) for name, path, data in fifos]
    if case.read_only:
        forbid(case, work)
    status, told, seconds, memory, ended = execute(programs[case.program], case, work, address_space)
    for name in case.read_only:
        os.chmod(os.path.join(folder, name), 0o700)
    for pid in helpers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    after = look(folder)
    wrong = wrong_ending(case, status, told, ended)
    if not wrong:
        wrong = wrong_message(case, status, told)
    if not ended:  # by us, who give no time to tidy up
        wrong += wrong_files(case, status, before, after) + wrong_contents(case, after, case.outputs)
        wrong += ["left %r in TMPDIR" % name for name in os.listdir(os.path.join(work, "tmp"))]
    if b"File too large" in told and not case.file_size:
        wrong.append("asked for more than %d MiB of disk" % (FILE_SIZE // MIB))
    return wrong, status, told, seconds, memory


# ---- The campaign ---------------------------------------------------------------------------------------------------


def make_case(seed, name, index):
    rng = random.Random("%s %s %d" % (seed, name, index))
    module = importlib.import_module("formats." + name)
    start = zlib.crc32(str(seed).encode())  # so that each seed begins elsewhere among the kinds of mutation
    return (module.good(rng) if index < 0 else module.make(rng, start + index)), rng


def work_of(options):
    return os.path.join(options.work, "at-%d" % os.getpid())


def baseline(program, options):
    """The memory of a program that does nothing: what is above it is the input's."""
    from case import Case
    return run_case(Case("the version", ["--version"]), work_of(options), {"napier": program}, random.Random(0))[4]


def check(task):
    """One input, in a worker: (name, index, what, wrong, status, seconds, memory, skipped)."""
    options, programs, limits, floor, sanitized, name, index = task
    case, rng = make_case(options.seed, name, index)
    if case.program not in programs or case.read_only and not may_forbid(options):
        return name, index, case.what, [], None, 0, 0
    wrong, status, told, seconds, memory = run_case(case, work_of(options), programs, rng, options.address_space * MIB)
    if index < 0 and status != 0 and not wrong and not lacks_library(told):
        wrong.append("a good input is refused")
    used = max(0, memory - floor)
    if name in limits:
        most = (limits[name][0] + limits[name][1] * case.size() + case.described) * (2 if sanitized else 1)
        if used > most:
            wrong.append("%d MiB of memory where docs/security.md allows %d" % (used // MIB, most // MIB))
    if wrong:
        keep(options, name, index, case, told)
    return name, index, case.what, wrong, status, seconds, used


def lacks_library(told):
    """The program was built without cJSON or the model's libraries, and says so."""
    return re.search(rb"this build has no|built without", told) is not None


def may_forbid(options):
    """Root may read everything: such cases run as nobody, who must be able to come to the inputs and to the program."""
    folders = set()
    for path in (options.work, options.program):
        while os.getuid() == 0 and path != "/":
            path = os.path.dirname(os.path.abspath(path))
            folders.add(path)
    return all(os.stat(folder).st_mode & stat.S_IXOTH for folder in folders)


def keep(options, name, index, case, told):
    """The input that failed, with its command line and what was said."""
    place = os.path.join(options.work, "failed", "%s-%s-%d" % (options.seed, name, index))
    shutil.rmtree(place, ignore_errors=True)
    lay_out(case, os.path.join(place, "case"))
    write_bytes(os.path.join(place, "stdin"), case.stdin)
    write_bytes(os.path.join(place, "stderr"), told)
    with open(os.path.join(place, "command"), "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("%s %r\n" % (case.program, case.words))


def shares(inputs, only):
    """How many inputs each format gets."""
    names = [only] if only else FORMATS
    share = {name: importlib.import_module("formats." + name).SHARE for name in names}
    total, so_far, given = sum(share.values()), 0, {}
    for name, part in share.items():
        given[name] = inputs * (so_far + part) // total - inputs * so_far // total
        so_far += part
    return given


def find_programs(program):
    """The program, and the replay programs of tests/fuzz beside it."""
    programs = {"napier": os.path.abspath(program)}
    for name in ("replay_state_load", "replay_umap_model", "replay_umap_csr"):
        path = os.path.join(os.path.dirname(programs["napier"]), "tests", name)
        if os.access(path, os.X_OK):
            programs[name] = path
    return programs


def has_sanitizer(program):
    """AddressSanitizer puts room around each block, and marks: twice the memory is then allowed."""
    with open(program, "rb") as file:
        return b"__asan_init" in file.read()


def tell_failure(options, name, index, what, wrong):
    print("FAIL %s %d (%s)" % (name, index, what.encode("ascii", "backslashreplace").decode()))
    for line in wrong:
        print("     " + line)
    print("     repeat: tests/hostile/run.py --seed %s --format %s --case %d --program %s" % (options.seed, name, index, options.program))
    with open(os.path.join(options.work, "failed", "%s-%s-%d" % (options.seed, name, index), "stderr"), "rb") as file:
        for line in file.read(1500).decode("ascii", "backslashreplace").split("\n")[:12]:
            print("     | " + re.sub(r"[\x00-\x1f\x7f]", "?", line)[:200])
    sys.stdout.flush()


def run(options):
    programs = find_programs(options.program)
    limits = memory_limits()
    wanted = shares(options.inputs, options.format)
    for name in wanted:
        if name not in limits:
            print("docs/security.md has no limit for %s" % name)
            return 1
    os.makedirs(options.work, exist_ok=True)
    floor = baseline(programs["napier"], options)
    sanitized = has_sanitizer(programs["napier"])
    if options.case is None:
        tasks = [(options, programs, limits, floor, sanitized, name, i) for name, count in wanted.items() for i in range(-GOOD, count - GOOD)]
    else:
        tasks = [(options, programs, limits, floor, sanitized, options.format, options.case)]
    passed = failed = 0
    left_out, most, slowest = {}, {}, {}
    statuses = {0: 0, 1: 0, 2: 0}
    with multiprocessing.Pool(options.jobs) as pool:
        for name, index, what, wrong, status, seconds, used in pool.imap_unordered(check, tasks, chunksize=4):
            if status is None:
                left_out[name] = left_out.get(name, 0) + 1
                continue
            statuses[status] = statuses.get(status, 0) + 1
            most[name] = max(most.get(name, (0, 0)), (used, index))
            slowest[name] = max(slowest.get(name, (0, 0)), (seconds, index))
            if not wrong:
                passed += 1
                continue
            failed += 1
            tell_failure(options, name, index, what, wrong)
    for name in os.listdir(options.work):
        if name.startswith("at-"):
            shutil.rmtree(os.path.join(options.work, name), ignore_errors=True)
    for name in most:
        print("%-13s most memory %4d MiB (input %d), longest %5.2f s (input %d)" % (
            name, most[name][0] // MIB, most[name][1], slowest[name][0], slowest[name][1]))
    print("exit status 0: %d, 1: %d, 2: %d; memory above the %d MiB of a program that does nothing" % (
        statuses[0], statuses[1], statuses[2], floor // MIB))
    for name, count in left_out.items():
        print("skip %s: %d inputs that need what is not here (a replay program, or a folder that nobody may enter)" % (name, count))
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=2000, help="how many, over all formats or of --format (default 2000)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--format", choices=FORMATS, help="only this one")
    parser.add_argument("--case", type=int, help="only this input of --format")
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "test", "asan", "napier"))
    parser.add_argument("--address-space", type=int, default=0, metavar="MIB",
                        help="let memory run out: a limit of the program's address space (not with sanitizers)")
    parser.add_argument("--work", default=os.path.join(ROOT, "build", "hostile"), help="where inputs lie and failures stay")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.case is not None and options.format is None:
        parser.error("--case needs --format")
    if not os.access(options.program, os.X_OK):
        print("no program at %s: build it with sanitizers, or give --program" % options.program)
        return 77
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
