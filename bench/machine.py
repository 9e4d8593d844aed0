"""What the driver knows of this machine and of processes on it."""
import os
import platform
import re
from pathlib import Path


def read(path, default=""):
    try:
        return Path(path).read_text()
    except OSError:
        return default


def cpu_model():
    for line in read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def distinct_cores():
    """One logical processor of each core that we may use."""
    seen, cpus = set(), []
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", str(cpu)).strip()
        if siblings not in seen:
            seen.add(siblings)
            cpus.append(cpu)
    return cpus


# What holds libraries to an instruction set: Napier's worker (napier_worker.c), PyTorch, its oneDNN and oneDNN alone, JAX.
# ONNX Runtime has no such setting: ort_peer.py holds it. XNNPACK and llama.cpp are not held.
ISAS = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "XLA_FLAGS": "--xla_cpu_max_isa=AVX2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",  # no matrix engine
               "XLA_FLAGS": "--xla_cpu_max_isa=AVX512"},
}


def hold_to(isa):
    """Holds libraries in this process's children to an instruction set."""
    os.environ.update(ISAS[isa], NAPIER_BENCH_ISA=isa)


def machine():
    caches = {}
    for index in range(5):
        where = f"/sys/devices/system/cpu/cpu0/cache/index{index}/"
        if read(where + "type").strip() in ("Data", "Unified"):
            caches["L" + read(where + "level").strip()] = read(where + "size").strip()
    return {"cpu": cpu_model(), "arch": platform.machine(), "cores": len(distinct_cores()), "caches": caches,
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "kernel": platform.release()}


def available_bytes():
    found = re.search(r"MemAvailable:\s+(\d+) kB", read("/proc/meminfo"))
    return int(found.group(1)) * 1024 if found else 4 << 30


def busy_seconds():
    """Processor time spent by everything on this machine since it started."""
    fields = [int(x) for x in read("/proc/stat", "cpu 0 0 0 0 0").splitlines()[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK") if len(fields) > 4 else 0.0


def process_seconds(pid):
    """Processor time of all threads of a process, to the nanosecond."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            total += int(read(f"/proc/{pid}/task/{task}/schedstat", "0").split()[0])
    except (OSError, IndexError):
        pass
    return total * 1e-9
