"""The program of one rank: `python -m e2e.gpu.nccl.rank OPTIONS`, with `Options` as JSON."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
import traceback
from collections.abc import Callable

from e2e.gpu.child import end_with_parent
from e2e.gpu.nccl import overlapping
from e2e.gpu.nccl.member import Member
from e2e.gpu.nccl.options import FAULT, LIMIT_S, Options
from e2e.gpu.nccl.report import Report
from e2e.gpu.nccl.ways import await_work

_WARM_UP_SUMS = 3


def main(text: str) -> None:
    """Plays and ends the process at once: destructors of groups may wait for lost ranks."""
    options = Options.of_text(text)
    end_with_parent()
    report = Report(options.report())
    code = 0
    try:
        member = Member.connect(options, report)
        PROGRAMS[options.program](member)
        report.finish()
    except Exception as error:  # noqa: BLE001 - the parent reports it
        report.fail(error)
        traceback.print_exc()
        faulthandler.dump_traceback(all_threads=True)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def change(member: Member) -> None:
    """Loses the last rank during a sum, continues without it, then admits a new rank."""
    options, report = member.options, member.report
    first = list(range(options.ranks))
    victim, newcomer = options.ranks - 1, options.ranks
    rest = first[:-1]
    if member.rank != newcomer:
        with report.at("form_first"):
            member.way.form(1, first)
        with report.at("sum_first"):
            for _ in range(_WARM_UP_SUMS):
                member.sum(first)
        if member.rank == victim:
            be_lost(member)
        lose(member, rest)
        member.announce("again")
    member.meet("again", rest)
    final = [*rest, newcomer]
    with report.at("form_join"):
        member.way.form(3, final)
    with report.at("sum_join"):
        member.sum(final)


def be_lost(member: Member) -> None:
    """Waits for the parent's signal, while the others sum."""
    member.report.come_to(FAULT)
    member.announce("begun")
    time.sleep(LIMIT_S)
    raise TimeoutError("no signal has come")


def lose(member: Member, rest: list[int]) -> None:
    """Begins a sum that a lost rank does not join; after the news, sums without that rank."""
    way, report = member.way, member.report
    work = member.begin_lost_sum()
    report.come_to("lost_sum")
    member.announce("begun")
    news_s = member.news()
    report.come_to("abort")

    def abort() -> float:
        begun_s = time.monotonic()
        way.abort()
        return time.monotonic() - begun_s

    aborting = member.start(abort)
    if way.ends_sums:
        await_work(way, work, LIMIT_S)
        report.figures["kernel_gone_s"] = time.monotonic() - news_s
    report.figures["abort_s"] = aborting.result(LIMIT_S)
    with report.at("form_again"):
        way.form(2, rest)
    with report.at("sum_again"):
        member.sum(rest)
    report.figures["news_to_sum_s"] = time.monotonic() - news_s
    report.write()


PROGRAMS: dict[str, Callable[[Member], None]] = {"change": change, "overlap": overlapping.overlap}
"""What a rank can play."""


if __name__ == "__main__":
    main(sys.argv[1])
