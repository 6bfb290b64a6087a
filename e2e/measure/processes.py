"""What processes cost: CPU seconds and memory, from /proc; and which machine this is."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_GIB = 1 << 30
_KIB_PER_MIB = 1024


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of its children, 0 when it is gone.

    Living children are followed, ended ones are in their parent's account.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()  # the name in brackets may hold blanks
    own = sum(map(int, fields[11:15])) / _TICKS_PER_S  # utime, stime, cutime, cstime
    return own + sum(cpu_seconds(int(child)) for child in children)


def peak_mb() -> float:
    """Peak memory of this program in MiB.

    Unlike `ru_maxrss`, VmHWM excludes the time before `exec`.
    """
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / _KIB_PER_MIB


def busy_seconds() -> float:
    """CPU seconds that all cores together have worked, or were kept from us, since the boot."""
    first = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
    user, nice, system, _idle, _waiting, *others = map(int, first.split()[1:9])
    return (user + nice + system + sum(others)) / _TICKS_PER_S


def others_percent(busy_s: float, ours_s: float, wall_s: float) -> float:
    """Share of all cores used by other processes: heavy load makes a measurement unfair.

    Args:
        busy_s: Growth of `busy_seconds` meanwhile.
        ours_s: CPU seconds of the processes under test.
        wall_s: How long it took.
    """
    available_s = wall_s * (os.cpu_count() or 1)
    return max(0.0, 100 * (busy_s - ours_s) / available_s) if available_s else 0.0


def machine() -> dict[str, Any]:
    """Returns the conditions of a measurement, for the report."""
    return {
        "cpus": os.cpu_count(),
        "cpu_model": _cpu_model(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def commit(root: Path) -> str:
    """Returns the commit that was measured, "+" behind it when files differ; "unknown" without git."""
    try:
        named = _git(root, "rev-parse", "--short=12", "HEAD")
        return named + ("+" if _git(root, "status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
