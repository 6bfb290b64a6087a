"""The cost of strangers for other callers: real servers with slow and silent connections.

Each server is a process (`bench.stranger_targets`). Its callers' calls and a kubelet's probes are measured
alone, and beside 200 sockets that drip, 200 handshakes that are half done, where it has any, and 1 000 idle
connections (`bench.stranger_sockets`). The dripping ones are on the port of the API where that admits a caller
without certificate, else on that of the probes. Then it is measured when the server ends slow connections, and,
for all servers at once, silent ones: five minutes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from http.client import HTTPConnection, HTTPException
from time import perf_counter, sleep
from typing import Any

import psutil
from edl import EdlError

from bench.benchmark import Result, Setting, latency_figures
from bench.stranger_sockets import Kind, Strangers
from bench.stranger_targets import TARGETS, HttpCall, Target
from e2e.measure.criteria import Criterion

P99_MS = 100.0
MEMORY_MB = 128.0
"""Additional memory that strangers may cost: a webhook uses 80 MB at rest and may use 268."""
COUNTS = {Kind.DRIPPING: 200, Kind.HALF_OPEN: 200, Kind.IDLE: 1_000}
QUICK_COUNTS = {Kind.DRIPPING: 10, Kind.HALF_OPEN: 10, Kind.IDLE: 20}
LATE_S = 5.0
"""How much later than its time limit a server may end a connection."""
_SLOW = (Kind.DRIPPING, Kind.HALF_OPEN)
_SILENT = 20
_QUICK_ROUNDS = 10
_CALLS_A_ROUND, _SECONDS_A_ROUND = 10, 1.0
"""Calls, where they do not take longer than this."""
_PROBE_S = 3.0
"""Time limit of a probe, as in deploy/base."""
_MB = 1e6
_FAILURES = (OSError, HTTPException, RuntimeError, EdlError)


def run(setting: Setting) -> Result:
    """Measures calls and probes of each server, alone and with strangers, and when it ends connections."""
    is_quick = setting.rounds <= _QUICK_ROUNDS
    counts = QUICK_COUNTS if is_quick else COUNTS
    raw: dict[str, Any] = {}
    criteria: list[Criterion] = []
    for name, start in TARGETS.items():
        with start() as target:
            figures = _measure(name, target, counts, setting)
            raw[name] = figures
            criteria += _criteria(f"strangers_{name}", target, figures)
    if not is_quick:
        setting.report_progress("strangers: silent ones of all servers")
        criteria += _silent_ones()
    return Result(tuple(criteria), {}, raw)


def _measure(
    name: str, target: Target, counts: Mapping[Kind, int], setting: Setting
) -> dict[str, Any]:
    setting.report_progress(f"strangers: {name} alone")
    figures: dict[str, Any] = {"alone": _answers(target, setting.rounds)}
    workers = _workers(target)
    memory_mb = _memory_mb(target)
    setting.report_progress(f"strangers: {name} beside strangers")
    with Strangers(target.approaches, counts) as strangers:
        figures["beside"] = _answers(target, setting.rounds)
        if target.slow_s is not None:
            strangers.await_ends(_SLOW, target.slow_s + LATE_S)
        figures["beside"]["memory_mb"] = max(figures["beside"]["memory_mb"], _memory_mb(target))
        figures["slow_ended_s"] = strangers.longest_s(_SLOW)
        figures["reopened"] = strangers.reopened
    figures["memory_growth_mb"] = figures["beside"]["memory_mb"] - memory_mb
    figures["restarts"] = len(workers - _workers(target))
    return figures


def _criteria(name: str, target: Target, figures: dict[str, Any]) -> Iterator[Criterion]:
    beside, alone = figures["beside"], figures["alone"]
    for kind in ("call", "probe"):
        if kind in beside:
            yield Criterion(f"{name}_{kind}_p99_ms", beside[kind]["p99_ms"], "ms", P99_MS)
            yield Criterion(f"{name}_{kind}_p99_ms_alone", alone[kind]["p99_ms"], "ms")
            yield Criterion(f"{name}_{kind}s_failed", beside[kind]["failed"], "", 0.0)
    yield Criterion(f"{name}_restarts", figures["restarts"], "", 0.0)
    yield Criterion(f"{name}_memory_growth_mb", figures["memory_growth_mb"], "MB", MEMORY_MB)
    if target.slow_s is not None:
        limit_s = target.slow_s + LATE_S
        yield Criterion(f"{name}_slow_ended_s", figures["slow_ended_s"], "s", limit_s)


def _silent_ones() -> Iterator[Criterion]:
    """Silent connections to all servers at once, because the longest time limit is five minutes."""
    with ExitStack() as stack:
        opened: list[tuple[str, float, Strangers]] = []
        for name, start in TARGETS.items():
            target = stack.enter_context(start())
            if target.silent_s is not None:
                strangers = Strangers({Kind.IDLE: target.silent}, {Kind.IDLE: _SILENT})
                opened.append((name, target.silent_s + LATE_S, stack.enter_context(strangers)))
        for name, limit_s, strangers in sorted(opened, key=lambda each: each[1]):
            strangers.await_ends((Kind.IDLE,), limit_s)
            ended_s = strangers.longest_s((Kind.IDLE,))
            yield Criterion(f"strangers_{name}_silent_ended_s", ended_s, "s", limit_s)


def _answers(target: Target, rounds: int) -> dict[str, Any]:
    """Figures of calls and probes, and the most memory in MB meanwhile."""
    acts: dict[str, Callable[[], object]] = {}
    if target.call is not None:
        acts["call"] = target.call
    if target.probe_port is not None:
        port = target.probe_port
        acts["probe"] = lambda: _probe(port)
    times: dict[str, list[float]] = {kind: [] for kind in acts}
    failed = dict.fromkeys(acts, 0)
    memory_mb = 0.0
    until_s = perf_counter() + rounds * _SECONDS_A_ROUND
    for number in range(rounds * _CALLS_A_ROUND):
        for kind, act in acts.items():
            begun_s = perf_counter()
            try:
                act()
            except _FAILURES:
                failed[kind] += 1
            times[kind].append((perf_counter() - begun_s) * 1000)
        if number % _CALLS_A_ROUND == 0:
            memory_mb = max(memory_mb, _memory_mb(target))
        sleep(target.pause_s)
        if perf_counter() > until_s:
            break
    figures = {
        kind: {"count": len(values), **latency_figures(values)} for kind, values in times.items()
    }
    return {
        **{kind: {**figures[kind], "failed": failed[kind]} for kind in acts},
        "memory_mb": memory_mb,
    }


def _probe(port: int) -> None:
    """Probes a server on a separate connection, like a kubelet."""
    link = HTTPConnection("127.0.0.1", port, timeout=_PROBE_S)
    try:
        HttpCall(link, "GET", "/healthz", None)()
    finally:
        link.close()


def _workers(target: Target) -> set[int]:
    """Ids of the server's processes that live."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(target.pid)
        return {process.pid, *(child.pid for child in process.children(recursive=True))}
    return set()


def _memory_mb(target: Target) -> float:
    """Memory of the server's processes; a page that several have counts once."""
    total = 0
    for pid in _workers(target):
        with suppress(psutil.NoSuchProcess):
            total += psutil.Process(pid).memory_full_info().pss
    return total / _MB
