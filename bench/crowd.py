"""A thousand trainers of one job: the cost of their calls for the master, and the time to notice losses.

A real master runs in its own process. The members are simulated by one asyncio program: each has a
connection for polls and one for heartbeats, and calls as the SDK does, at the pace of the answers.
Processor time is the master's own, so other load matters little.
"""

import asyncio
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import orjson
from edl.master.long_wait import LongWait
from edl.master.protocol import RoundView, parse_round

from bench.benchmark import Result, Setting
from bench.master import Json, MasterProcess, raw_answer_of, request, temporary_home
from e2e.measure.criteria import Criterion

MEMBERS, QUICK_MEMBERS = 1_000, 50
GROUP = 40
"""More than are killed and frozen."""
CORE, KILL_S, FREEZE_S = 0.2, 0.4, 1.5
"""The required limits: cores for polls and heartbeats, and seconds from a loss to the news."""
_BETWEEN_PROBES_S = 2.5
_QUICK_ROUNDS = 10
_SETTLES_S = 12.0
_MEASURED_S = 30.0
_FORMED_S = 120.0
_POLL_S = 10.0
_LIST = re.compile(rb'"members":\[.*?\],')
_HEARTBEAT_S = 2.0
_CHECK_S = 0.25
"""How often a member looks whether its program waits, as the SDK does."""
_NO_ROUND = RoundView(0, (), formed=False, probe=0, void=0)


def run(setting: Setting) -> Result:
    """Measures the master's processor time while a round goes on, and after kills."""
    is_quick = setting.rounds <= _QUICK_ROUNDS
    members, kills = (QUICK_MEMBERS, 2) if is_quick else (MEMBERS, 15)
    seconds = 2.0 if is_quick else _MEASURED_S
    setting.report_progress(f"crowd: {members} trainers, {seconds:.0f} s")
    with temporary_home() as home:
        raw = asyncio.run(_measure(home, members, seconds, 1))
    setting.report_progress(f"crowd: {GROUP} trainers, of which {kills} are killed")
    with temporary_home() as home:
        raw["group"] = asyncio.run(_measure(home, GROUP, 0.0, kills))
    criteria = (
        Criterion("crowd_master_cores", raw["cores"], "", CORE),
        Criterion("crowd_calls_per_second", raw["calls_per_s"], "/s"),
        Criterion("crowd_round_forms_cpu_s", raw["forming_cpu_s"], "s"),
        Criterion("crowd_kill_to_news_s", median(raw["group"]["kills_s"]), "s", KILL_S),
        Criterion("crowd_freeze_to_news_s", median(raw["group"]["freezes_s"]), "s", FREEZE_S),
        Criterion("crowd_kill_of_a_thousand_s", raw["kills_s"][0], "s"),
        Criterion("crowd_freeze_of_a_thousand_s", raw["freezes_s"][0], "s"),
    )
    return Result(criteria, {}, raw)


async def _measure(home: Path, count: int, seconds: float, kills: int) -> Json:
    with MasterProcess(home, heartbeat_s=_HEARTBEAT_S) as master:
        members = [_Member(f"trainer-{i}", master) for i in range(count)]
        tasks = [task for member in members for task in member.start()]
        try:
            cpu_s = _cpu_s(master.pid)
            await _until(members, lambda member: member.formed and member.round_size == count)
            forming_cpu_s = _cpu_s(master.pid) - cpu_s
            await asyncio.sleep(min(seconds, _SETTLES_S))
            cpu_s, begun_s = _cpu_s(master.pid), perf_counter()
            calls = sum(member.calls for member in members)
            await asyncio.sleep(seconds)
            took_s = max(perf_counter() - begun_s, 1e-3)
            raw: dict[str, Any] = {
                "members": count,
                "cores": (_cpu_s(master.pid) - cpu_s) / took_s,
                "calls_per_s": (sum(member.calls for member in members) - calls) / took_s,
                "forming_cpu_s": forming_cpu_s,
            }
            raw["kills_s"] = [await _lose(members, _Member.kill) for _ in range(kills)]
            raw["freezes_s"] = []
            for _ in range(kills):
                await asyncio.sleep(_pause_s(len(members)))
                raw["freezes_s"].append(await _lose(members, _Member.freeze))
            return raw
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _lose(members: list["_Member"], loss: Callable[["_Member"], None]) -> float:
    """Kills or freezes a member. Seconds until half of the others know.

    The others wait for a frozen one in a sum, and report that; connections of a killed one are closed.
    """
    victim = members.pop()
    begun_s = perf_counter()
    loss(victim)
    async with asyncio.TaskGroup() as reports:
        for member in members:
            reports.create_task(member.report_wait(begun_s))
        await _until(members, lambda member: member.formed and member.round_size == len(members))
    return sorted(member.learnt_s for member in members)[len(members) // 2] - begun_s


def _pause_s(members: int) -> float:
    """Steps go on for so long between two losses: probes for waiting alone have pauses."""
    return max(_BETWEEN_PROBES_S, members / 150)


async def _until(members: list["_Member"], holds: Any) -> None:
    async with asyncio.timeout(_FORMED_S):
        while not all(map(holds, members)):  # noqa: ASYNC110 - members change without a signal
            await asyncio.sleep(0.05)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class _Member:
    """One simulated process."""

    name: str
    master: MasterProcess
    round_size: int = 0
    formed: bool = False
    learnt_s: float = 0.0
    """When it received the newest round."""
    calls: int = 0
    _view: RoundView = _NO_ROUND
    _is_ready: bool = False
    wait: LongWait = field(default_factory=LongWait)
    """The wait of its program for others."""
    _sender: tuple[asyncio.StreamReader, asyncio.StreamWriter] = field(init=False)
    """The connection for reports, separate from the connection for polls."""
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> list[asyncio.Task[None]]:
        """Starts its threads, here tasks."""
        self._tasks = [asyncio.create_task(self._poll()), asyncio.create_task(self._heartbeat())]
        return self._tasks

    def kill(self) -> None:
        """Closes its connections as the kernel does when a process is killed."""
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()

    def freeze(self) -> None:
        """Calls nothing more; its connections stay."""
        for task in self._tasks:
            task.cancel()

    async def report_wait(self, since_s: float) -> None:
        """Reports that its program waits for others, when the SDK would, until there is news."""
        self.wait.since_s = since_s
        while (due_in_s := self.wait.due_in_s(perf_counter())) is not None:
            if due_in_s > 0.0:
                await asyncio.sleep(min(_CHECK_S, due_in_s))
                continue
            body = self._body(self._view.round)
            await self._exchange(*self._sender, "/v1/rendezvous", body)
            self.wait.record_report(since_s, body["waiting_s"])

    async def _poll(self) -> None:
        reader, writer = await self._connect()
        self._sender = await self._connect()
        wait_s, is_member, name = _POLL_S, False, f'"{self.name}"'.encode()
        while True:
            body = self._body(self._view.round if is_member else 0)
            body |= {"known": is_member, "wait_s": wait_s if self._is_ready else 0.0}
            self._is_ready = True
            raw = await self._exchange(reader, writer, "/v1/rendezvous", body)
            answer: Json = orjson.loads(_LIST.sub(b"", raw, 1))
            view, newest, wait_s = parse_round(answer), self._view, answer["wait_s"]
            self.wait.record_answer(view, newest)
            self._view, self.formed = view, view.formed
            if view.round > newest.round:
                self.learnt_s, self.wait.since_s = perf_counter(), None
                stay_count = self.round_size - len(answer["gone"]) if "since" in answer else 0
                is_member = name in raw or (stay_count > 0 and not answer["dropped"])
                self.round_size = stay_count + raw.count(b'"trainer"')
                self._is_ready = False

    def _body(self, at: int) -> Json:
        view = self._view
        body: Json = {"address": f"{self.name}:1", "code": {}, "seen": view.round, "at": at}
        body |= {"ready": at > 0, "known": at > 0, "probe": view.probe, "void": view.void}
        return {**body, "wait_s": 0.0, "waiting_s": self.wait.length_s(perf_counter())}

    async def _heartbeat(self) -> None:
        reader, writer = await self._connect()
        pace_s, is_joined = 0.0, False
        while True:
            await asyncio.sleep(pace_s)
            try:
                if not is_joined:
                    await self._ask(reader, writer, "/v1/join", {})
                answer = await self._ask(reader, writer, "/v1/heartbeat", {"held": []})
            except RuntimeError:  # it was silent for too long: the machine is slow
                is_joined = False
                continue
            pace_s, is_joined = answer["pace_s"], True

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.master.port, limit=1 << 24)
        self._writers.append(writer)
        return reader, writer

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: Json
    ) -> Json:
        answer: Json = orjson.loads(await self._exchange(reader, writer, path, body))
        return answer

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: Json
    ) -> bytes:
        self.calls += 1
        who = {"trainer": self.name, "incarnation": self.name}
        writer.write(request("POST", path, {**who, **body}, self.master.token))
        return await raw_answer_of(reader)
