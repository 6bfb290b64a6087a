"""`when`: shows a waiting job's place in line, what it waits for, and what must end before it starts."""

from pathlib import Path
from typing import Any

import click

from cli import snapshots
from cli.errors import CliError, ExitCode
from cli.frame import Frame, command
from policy import quantity
from policy.cluster.snapshot import Job
from policy.nearest import advice
from policy.planning.must_leave import must_leave
from policy.planning.plan import JobPlan
from policy.planning.plan_input import PlanInput
from policy.planning.waiting_line import Place, line

_MAX_NAMED = 5


@command("when")
@click.argument("job")
@click.option(
    "--snapshot",
    "path",
    type=click.Path(path_type=Path),
    help="Snapshot file to use, instead of the cluster.",
)
def when(frame: Frame, job: str, path: Path | None) -> None:
    """Show a job's place in the waiting line, and what must end before it starts.

    JOB is NAME, or NAMESPACE/NAME as `plan` prints it. The end of running jobs is unknown, so a place is a
    range, which holds for nearly every order in which they may end. On a cluster of thousands of nodes, the
    command may take a minute.
    """
    file = snapshots.read(path) if path is not None else snapshots.of_cluster(frame)
    plan_input = file.input
    name = job.removeprefix("job/")
    key = name if "/" in name else f"{frame.namespace or 'default'}/{name}"
    jobs = {candidate.key: candidate for candidate in plan_input.snapshot.jobs}
    if key not in jobs:
        near = advice(key, jobs, prefix=f"{key.partition('/')[0]}/")
        raise CliError(f"there is no elastic job {key}{near}", ExitCode.NOT_FOUND)
    with snapshots.planning(path):
        result = _document(plan_input, jobs[key])
    frame.show(result, lambda _: _print(frame, result))


def _document(plan_input: PlanInput, job: Job) -> dict[str, Any]:
    """Returns the result as JSON values."""
    places = line(plan_input)
    place = next((entry for entry in places if entry.plan.key == job.key), None)
    if place is not None:
        return _waiting(plan_input, job, place, len(places))
    job_plan = next((entry for entry in plan_input.plan().jobs if entry.key == job.key), None)
    return {
        "job": job.key,
        "waits": False,
        "trainers": job_plan.live if job_plan is not None else 0,
        "next": job_plan.target if job_plan is not None else 0,
        "min": job.min_trainers,
        **_why(job_plan),
    }


def _why(job_plan: JobPlan | None) -> dict[str, str]:
    if job_plan is None:
        text = "EDL does not act in this namespace: see `namespaces` and `protectedNamespaces` in the policy"
        return {"code": "", "text": text}
    return {"code": str(job_plan.reason), "text": job_plan.detail}


def _waiting(plan_input: PlanInput, job: Job, place: Place, waiting: int) -> dict[str, Any]:
    cluster = plan_input.cluster()
    lacking = must_leave(cluster, plan_input.policy, job, place.missing)
    needs = {
        name: quantity.show(name, amount)
        for name, amount in cluster.jobs[job.key].requests.items()
        if name != "pods"
    }
    return {
        "job": job.key,
        "waits": True,
        "missing": place.missing,
        "first": place.first,
        "last": place.last,
        "waiting": waiting,
        "ahead": list(place.ahead),
        "ends": place.ends,
        **_why(place.plan),
        "mustLeave": {
            "trainers": lacking.trainers,
            "each": needs,
            "anyOf": list(lacking.any_of),
            "allOf": list(lacking.all_of),
            "services": lacking.services,
        },
    }


def _print(frame: Frame, result: dict[str, Any]) -> None:
    for text in _lines(result) if result["waits"] else _not_waiting(result):
        frame.say(text)


def _not_waiting(result: dict[str, Any]) -> list[str]:
    head = f"{result['job']} does not wait: it has {_count(result['trainers'], 'trainer')}"
    if result["trainers"] < result["min"]:
        head = f"{result['job']} does not wait for capacity that other jobs hold"
    target = f"; the next plan gives it {result['next']}" if result["next"] else ""
    return [f"{head}{target}.", f"Why it has no more: {_reason(result)}"]


def _lines(result: dict[str, Any]) -> list[str]:
    first, last, waiting = result["first"], result["last"], result["waiting"]
    place = str(first) if first == last else f"{first} to {last}"
    lines = [
        f"{result['job']} waits for {_count(result['missing'], 'trainer')} of its minimum.",
        f"Place: {place} of {waiting}{_ahead(result['ahead'])}",
        f"Why: {_reason(result)}",
    ]
    lacking = result["mustLeave"]
    needs = ", ".join(f"{amount} {name}" for name, amount in lacking["each"].items())
    if lacking["anyOf"]:
        lines.append(f"Fits when one of these ends: {_some(lacking['anyOf'])}")
    elif lacking["allOf"]:
        lines.append(f"Fits when these end: {_some(lacking['allOf'])}")
    elif lacking["services"]:
        trainers = f"{_count(lacking['trainers'], 'trainer')} ({needs} each)"
        lines.append(
            f"Fits when services end or nodes are added: capacity for {trainers} is missing"
        )
    if result["ends"]:
        jobs = "job has" if result["ends"] == 1 else "jobs have"
        lines.append(f"Starts when about {result['ends']} running {jobs} ended.")
    elif result["ends"] == 0:
        lines.append("Starts with one of the next plans.")
    return lines


def _reason(result: dict[str, Any]) -> str:
    return f"{result['code']}: {result['text']}" if result["code"] else result["text"]


def _ahead(keys: list[str]) -> str:
    return f"; before it: {_some(keys)}" if keys else ""


def _some(names: list[str]) -> str:
    others = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {others} more" if others > 0 else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
