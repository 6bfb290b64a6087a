"""The program of a rank that forms a second group on a thread while it sums in the first one."""

from __future__ import annotations

import time
from statistics import median

from e2e.gpu.nccl.member import Member
from e2e.gpu.nccl.options import LIMIT_S
from e2e.gpu.nccl.ways import Way, await_work

_SUMS_BEFORE = 50
_MOST_SUMS = 20_000


def overlap(member: Member) -> None:
    """Measures the sums of a group before and while another one is formed, then sums in that one."""
    report, ranks = member.report, list(range(member.options.ranks))
    first, second = member.way, member.another_way()
    free_mb = [_free_together(member, "alone", ranks)]
    with report.at("form_first"):
        first.form(1, ranks)
    free_mb.append(_free_together(member, "one", ranks))
    report.come_to("sums before")
    member.sum(ranks)
    before = [_sum(member, first, ready=False)[0] for _ in range(_SUMS_BEFORE)]
    free_mb.append(_free_together(member, "summed", ranks))

    def form() -> float:
        begun_s = time.monotonic()
        second.form(2, ranks)
        return time.monotonic() - begun_s

    report.come_to("form_second")
    forming = member.start(form)
    during: list[float] = []
    while len(during) < _MOST_SUMS:
        took_s, ready = _sum(member, first, ready=forming.done())
        during.append(took_s)
        if ready == len(ranks):  # all ranks see the same sum, so all stop at the same one
            break
    report.figures["form_second_s"] = forming.result(LIMIT_S)
    free_mb.append(_free_together(member, "two", ranks))
    member.way = second
    with report.at("sum_second"):
        member.sum(ranks)
    report.figures |= {
        "sum_before_median_s": median(before),
        "sum_before_longest_s": max(before),
        "sum_during_median_s": median(during),
        "sum_during_longest_s": max(during),
        "sums_during": float(len(during)),
        "communicator_first_mb": (free_mb[0] - free_mb[1]) / len(ranks),
        "communicator_second_mb": (free_mb[2] - free_mb[3]) / len(ranks),
    }
    report.come_to("abort")
    for way in (first, second):
        way.abort()


def _free_together(member: Member, step: str, ranks: list[int]) -> float:
    """Returns the card's free memory at a moment when all ranks have come to a step."""
    member.announce(f"{step}-come")
    member.meet(f"{step}-come", ranks)
    free_mb = member.free_mb()
    member.announce(f"{step}-measured")
    member.meet(f"{step}-measured", ranks)
    return free_mb


def _sum(member: Member, way: Way, *, ready: bool) -> tuple[float, int]:
    """Sums once; returns the seconds, and how many ranks are ready."""
    ranks = list(range(member.options.ranks))
    tensor = member.own_values()
    tensor[-1] = float(ready)
    begun_s = time.monotonic()
    await_work(way, way.begin(tensor), LIMIT_S)
    took_s = time.monotonic() - begun_s
    ready_ranks = int(tensor[-1])
    tensor[-1] = member.expected(ranks)[-1]
    member.check(tensor, ranks)
    return took_s, ready_ranks
