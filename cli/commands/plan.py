"""`plan`: shows the actions of the next plan, and the effect of another policy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from cli import snapshots, terminal
from cli.frame import Frame, command
from cli.terminal import Column
from policy.planning.forecast import Forecast
from policy.planning.plan import Plan
from policy.planning.plan_input import PlanInput
from policy.planning.snapshot_file import SnapshotFile, comparable

_MAX_ACTIONS = 20
"""Maximum number of creations and releases in the table; JSON output contains all of them."""


@command("plan", whole_cluster=True)
@click.option(
    "--snapshot",
    "path",
    type=click.Path(path_type=Path),
    help="Snapshot file to plan on, instead of the cluster.",
)
@click.option(
    "--policy",
    "policy_path",
    type=click.Path(path_type=Path),
    help="Policy file to compare: also show its outcome.",
)
@click.option(
    "--no-forecast",
    is_flag=True,
    help="Show only the next plan, not the outcome of the plans after it.",
)
def plan(frame: Frame, path: Path | None, policy_path: Path | None, *, no_forecast: bool) -> None:
    """Show what EDL would do now, without changing anything.

    NEXT is the number of trainers after the next plan; SETTLES is the number at which later plans
    stop changing it, if services and jobs stay as they are. With --policy, POLICY is that number
    under the policy in the file, and STOPPED is the number of trainers that the policy would stop.
    On a live cluster, the plan does not include the reconciler's memory: back-offs, and nodes that
    cool down.
    """
    other = None if policy_path is None else snapshots.read_policy(policy_path)
    if path is not None:
        file = snapshots.read(path)
        with_other = replace(file.input, policy=other) if other is not None else None
    else:
        policy = snapshots.policy_in_force(frame)
        cluster = snapshots.read_cluster(frame)
        file = SnapshotFile(cluster.under(policy), complete=False)
        with_other = cluster.under(other) if other is not None else None
    with snapshots.planning(path):
        new_plan = file.input.plan()
        settled = None if no_forecast and other is None else _settled(file.input)
        settled_with_other = _settled(with_other) if with_other is not None else None
    result = _document(file, new_plan, settled, settled_with_other)
    frame.show(result, lambda console: _print(console, frame, result))


def _settled(plan_input: PlanInput) -> dict[str, Any]:
    """Returns job key -> its final number of trainers, the reason, and how many trainers are stopped until then."""
    forecast = Forecast(plan_input)
    last = forecast.settle()
    return {
        job_plan.key: {
            "trainers": job_plan.target,
            "stopped": forecast.stopped.get(job_plan.key, 0),
            "code": str(job_plan.reason),
            "text": job_plan.detail,
        }
        for job_plan in last.jobs
    }


def _document(
    file: SnapshotFile,
    new_plan: Plan,
    settled: dict[str, Any] | None,
    with_other: dict[str, Any] | None,
) -> dict[str, Any]:
    """Returns the result as JSON values."""
    jobs = []
    for job_plan in new_plan.jobs:
        row: dict[str, Any] = {
            "job": job_plan.key,
            "trainers": job_plan.live,
            "next": job_plan.target,
            "code": str(job_plan.reason),
            "text": job_plan.detail,
        }
        if settled is not None:
            row["settles"] = settled[job_plan.key]
        if with_other is not None:
            row["policy"] = with_other[job_plan.key]
        jobs.append(row)
    result: dict[str, Any] = {
        "at": file.input.at_s,
        "jobs": jobs,
        "creates": _creates(new_plan),
        "releases": _releases(new_plan),
        "complete": file.complete,
    }
    if file.decided is not None:
        result["asDecided"] = comparable(new_plan) == file.decided
    return result


def _creates(new_plan: Plan) -> list[dict[str, Any]]:
    trainers = [
        {
            "job": create.job,
            "what": "trainer",
            "count": create.count,
            "code": str(create.reason),
            "nodes": list(create.nodes),
        }
        for create in new_plan.creates
    ]
    servers = [
        {
            "job": create.job,
            "what": "parameter server",
            "count": len(create.nodes),
            "code": "Guaranteed",
            "nodes": list(create.nodes),
        }
        for create in new_plan.server_creates
    ]
    return trainers + servers


def _releases(new_plan: Plan) -> list[dict[str, Any]]:
    trainers = [
        {
            "job": release.job,
            "pod": f"{release.namespace}/{release.pod}",
            "node": release.node,
            "code": str(release.reason),
            "text": release.detail,
        }
        for release in new_plan.releases
    ]
    servers = [
        {
            "job": release.job,
            "pod": f"{release.namespace}/{release.pod}",
            "node": "",
            "code": str(release.reason),
            "text": "",
        }
        for release in new_plan.server_releases
    ]
    return trainers + servers


def _print(console: Console, frame: Frame, result: dict[str, Any]) -> None:
    rows = result["jobs"]
    if not rows:
        frame.say("There are no elastic jobs.")
    else:
        console.print(_table(rows, console.width))
    for line in _actions(result):
        frame.say(line)
    if "asDecided" in result:
        same = "the same" if result["asDecided"] else "something different"
        frame.say(f"The reconciler decided {same} on this snapshot.")


def _table(rows: list[dict[str, Any]], width: int) -> Table:
    columns = [
        Column("JOB", wraps=True),
        Column("TRAINERS", right=True),
        Column("NEXT", right=True),
    ]
    shown = rows[0]
    last = "policy" if "policy" in shown else "settles" if "settles" in shown else ""
    if "settles" in shown:
        columns.append(Column("SETTLES", right=True))
    if "policy" in shown:
        columns += [Column("POLICY", right=True), Column("STOPPED", optional=True, right=True)]
    columns.append(Column("WHY"))
    cells = []
    for row in rows:
        line = [row["job"], row["trainers"], row["next"]]
        if "settles" in row:
            line.append(row["settles"]["trainers"])
        if "policy" in row:
            line += [row["policy"]["trainers"], row["policy"]["stopped"]]
        cells.append([*line, row[last]["code"] if last else row["code"]])
    return terminal.table(columns, cells, width)


def _actions(result: dict[str, Any]) -> list[str]:
    """Returns a line for each of the first creations and releases of the next plan."""
    lines = [
        f"+{create['count']} {create['what']}{'s' if create['count'] > 1 else ''} of {create['job']}"
        f" ({create['code']})"
        for create in result["creates"]
    ]
    for release in result["releases"]:
        reason = f": {release['text']}" if release["text"] else ""
        lines.append(f"-1 {release['pod']} ({release['code']}{reason})")
    others = len(lines) - _MAX_ACTIONS
    if others > 0:
        lines = [*lines[:_MAX_ACTIONS], f"and {others} more; -o json lists all"]
    return lines or ["The next plan changes nothing."]
