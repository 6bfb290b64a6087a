"""The first process of a real node; when it ends, the kernel ends all others of the node.

A script of its own (`python init.py PLAN`, standard library only), run as process 1 of new
process, mount and network namespaces. Takes directories and an address from the plan that
`configuration.plan` makes, starts containerd, loads images, then starts kubelet and
kube-proxy; ends when one of them does.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
POLL_S = 0.05
CANNOT = 1
PARAMETERS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""What a kubelet sets for good and for the whole machine, unless it finds it set."""


def run(*command: str) -> None:
    """Runs a short command to its end; what it says goes to our log."""
    subprocess.run(command, check=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)


def mount(plan: dict[str, Any]) -> None:
    """Gives the node its own directories, and shows it the kernel parameters that it wants."""
    for place, source in plan["mounts"].items():
        run("mount", "--bind", source, place)
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for name, value in PARAMETERS.items():
        shown = Path("/run", name.replace("/", "."))
        shown.write_text(f"{value}\n")
        run("mount", "--bind", str(shown), f"/proc/sys/{name}")


def connect(plan: dict[str, Any]) -> None:
    """Sets the address once the starting process has moved the link into our namespace."""
    end = time.monotonic() + PATIENCE_S
    while not Path("/proc/sys/net/ipv4/conf/eth0").exists():
        if time.monotonic() > end:
            raise RuntimeError("no network link came")
        time.sleep(POLL_S)
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", plan["address"], "peer", plan["gateway"], "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "route", "add", "default", "via", plan["gateway"])


def start(command: list[str], plan: dict[str, Any]) -> "subprocess.Popen[bytes]":
    """Starts one component with a log of its own."""
    log = Path(plan["logs"], command[0]).with_suffix(".log")
    with log.open("ab") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def wait_ready(command: list[str], runtime: "subprocess.Popen[bytes]") -> None:
    """Returns when `command` succeeds."""
    end = time.monotonic() + PATIENCE_S
    while subprocess.run(command, check=False, timeout=PATIENCE_S, capture_output=True).returncode:
        if runtime.poll() is not None or time.monotonic() > end:
            raise RuntimeError("containerd is not ready; see its log")
        time.sleep(POLL_S)


def stay(running: dict[int, str]) -> int:
    """Reaps ended processes, orphans of the node included, until a component ends."""
    while True:
        pid, status = os.wait()
        if pid in running:
            code = os.waitstatus_to_exitcode(status)
            print(f"{running[pid]} ended with exit code {code}", flush=True)
            return CANNOT


def main(path: str) -> int:
    """Runs the node; returns when one of its components ended."""
    plan = json.loads(Path(path).read_text())
    os.environ["PATH"] = (
        f"{plan['path']}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    )
    try:
        mount(plan)
        connect(plan)
        runtime = start(plan["runtime"], plan)
        wait_ready(plan["ready"], runtime)
        for command in plan["imports"]:
            run(*command)
        running = {runtime.pid: "containerd"}
        for command in plan["services"]:
            running[start(command, plan).pid] = command[0]
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        print(f"the node cannot start: {error}", flush=True)
        return CANNOT
    return stay(running)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
