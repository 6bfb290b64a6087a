"""Plays the cases of `e2e.experiments.forecasts` on one real control plane, one after the other."""

import contextlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import yaml

from cli.__main__ import main as edl
from e2e.cluster.build import Binaries
from e2e.control_plane import EdlControlPlane
from e2e.demo.view import LiveView
from e2e.environment import (
    Environment,
    create_nodes,
    edl_environment,
    has_account,
    wait_registered,
)
from e2e.experiments.forecasts import (
    NAMESPACES,
    Case,
    Outcome,
    draw,
    job_manifest,
    line,
    pool,
    service_manifest,
)
from e2e.settling import Ticks
from e2e.waiting import until
from kube import decode, reading, request
from kube.request import JOBS, NODES, PODS, Request, path_of
from policy.document.model import Policy
from policy.names import Role
from runtime import clock

_SETTLE_S = {True: 60.0, False: 300.0}
"""Where policies are quick, and where they are paced as a user's: within this time a case settles."""
_CLEAN_S = 30.0
_CLIENTS = 8
_KEPT = 20
"""Snapshots of the reconciler's plans: only the newest is read."""
_AT_ONCE = orjson.dumps(
    {"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
)


class ForecastError(Exception):
    """A case cannot be played; the text is one line."""


def play(
    binaries: Binaries, directory: Path, view: LiveView, numbers: Sequence[int], *, quick: bool
) -> Iterator[Outcome]:
    """Starts a cluster, plays the cases, stops everything; `directory` keeps the logs.

    Args:
        binaries: The cluster's programs.
        directory: Emptied first.
        view: Gets a line about each case.
        numbers: The cases.
        quick: Whether policies pace plans for the sake of the run (`forecasts.draw`).

    Raises:
        ClusterError: the cluster did not start.
        ControlPlaneError: EDL did not start.
        ForecastError: a command failed.
    """
    ticks = directory.resolve() / "ticks"
    control_plane = EdlControlPlane(directory)
    control_plane.flags["reconciler"] = (
        *("--snapshot-folder", str(ticks), "--snapshots-kept", str(_KEPT)),
        *("--tick-seconds", "0.5"),
    )
    with (
        edl_environment(directory, control_plane, binaries=binaries) as environment,
        ThreadPoolExecutor(_CLIENTS, thread_name_prefix="create") as clients,
    ):
        create_nodes(environment, pool())
        for name in NAMESPACES:
            body = {"metadata": {"name": name}}
            environment.send(request.create(request.NAMESPACES, None, body))
            may_have_pods = partial(has_account, environment.api, name)
            until("it may have pods", may_have_pods, bool, _CLEAN_S)
        wait_registered(environment)
        stage = _Stage(environment, Ticks(ticks), directory, clients, _SETTLE_S[quick])
        for number in numbers:
            outcome = stage.play(draw(number, quick=quick))
            view.say(line(outcome))
            yield outcome


class _Stage:
    """The cluster on which cases are played."""

    def __init__(
        self,
        environment: Environment,
        ticks: Ticks,
        directory: Path,
        clients: ThreadPoolExecutor,
        settle_s: float,
    ) -> None:
        self._environment = environment
        self._ticks = ticks
        self._policy_file = directory / "policy.yaml"
        self._clients = clients
        self._settle_s = settle_s
        self._open = {item["metadata"]["name"] for item in pool()}

    def play(self, case: Case) -> Outcome:
        """Plays one case; the cluster is empty before and after."""
        begun_s = clock.monotonic_s()
        self._open_nodes(case)
        self._set_policy(case.before)
        self._send(
            [
                *(request.create(PODS, s.namespace, service_manifest(s)) for s in case.services),
                *(request.create(JOBS, job.namespace, job_manifest(job)) for job in case.jobs),
            ]
        )
        unfinished = self._settle(case, case.before)
        before = self._trainers(case)
        predicted = self._forecast(case)
        self._set_policy(case.after)
        unfinished = unfinished or self._settle(case, case.after)
        happened = self._trainers(case)
        self._clear()
        seconds = clock.monotonic_s() - begun_s
        return Outcome(case.number, before, predicted, happened, seconds, unfinished)

    def _forecast(self, case: Case) -> dict[str, int]:
        """Returns the command's forecast of the next policy."""
        path = self._policy_file
        path.write_text(_text(case.after))
        words = ["plan", "--policy", str(path), "-o", "json"]
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = edl([*words, "--kubeconfig", str(self._environment.cluster.admin)])
        if code:
            raise ForecastError(f"plan --policy failed: {errors.getvalue().strip()}")
        rows = orjson.loads(out.getvalue())["jobs"]
        return {row["job"]: row["policy"]["trainers"] for row in rows}

    def _settle(self, case: Case, policy: Policy) -> str:
        """Waits until the cluster has settled; what still goes on when time is up, "" for nothing."""
        jobs = {job.key for job in case.jobs}
        return self._ticks.settle(policy, jobs, len(case.services), self._settle_s)

    def _trainers(self, case: Case) -> dict[str, int]:
        """Job key -> its trainers in the API server."""
        counts = Counter({job.key: 0 for job in case.jobs})
        for item in reading.list_all(self._environment.api, PODS):
            pod = decode.pod(item)
            if pod.role is Role.TRAINER and not (pod.deleting or pod.terminal):
                counts[f"{pod.namespace}/{pod.job}"] += 1
        return dict(counts)

    def _open_nodes(self, case: Case) -> None:
        """Cordons all nodes that do not belong to the case."""
        wanted = set(case.nodes)
        self._send(
            request.merge_patch(NODES, None, name, {"spec": {"unschedulable": name not in wanted}})
            for name in self._open ^ wanted
        )
        self._open = wanted

    def _set_policy(self, policy: Policy) -> None:
        self._environment.set_policy(_text(policy))

    def _clear(self) -> None:
        """Deletes Jobs and pods; returns when no pod is left."""
        for kind in (JOBS, PODS):
            self._send(Request("DELETE", path_of(kind, name), body=_AT_ONCE) for name in NAMESPACES)
        pods = self._environment.pods
        until(
            "no pod is left",
            lambda: [pod.key for name in NAMESPACES for pod in pods.now(name)],
            lambda keys: not keys,
            _CLEAN_S,
        )

    def _send(self, requests: Iterable[Request]) -> None:
        list(self._clients.map(self._environment.api.send, requests))


def _text(policy: Policy) -> str:
    """Returns the document of a policy."""
    fields: dict[str, Any] = policy.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    return yaml.safe_dump(fields)
