"""TrainingJobs in the cluster in memory, and their controller without its threads."""

from typing import Any

from kube import request
from kube.request import JOBS, TRAININGJOBS
from reconciler.jobs.role_counts import RoleCounts
from reconciler.jobs.training_jobs import TrainingJobController
from reconciler.records.events import EventRecorder
from tests.reconciler import objects
from tests.reconciler.world import World
from tests.support import rbac
from tests.support.rbac import RestrictedApi


def new_training_job(
    name: str = "digits", low: int = 2, high: int = 6, **spec: Any
) -> dict[str, Any]:
    """A TrainingJob as the API server stores it."""
    template = {"spec": {"containers": objects.containers(1)}}
    trainer = {"min": low, "max": high, "template": template}
    body = {"trainer": trainer, "suspend": False, **spec}
    return {"metadata": {"name": name, "namespace": "ml"}, "spec": body}


class Controller:
    """A controller on a world, without its threads, with the rights that deploy/base grants it."""

    def __init__(
        self,
        world: World,
        account: rbac.Account | None = None,
        role_counts: RoleCounts | None = None,
    ) -> None:
        self.world = world
        self.account = account or rbac.account("edl-reconciler")
        api = RestrictedApi(world.api, self.account)
        self.recorder = EventRecorder(api, "test", world.clock.now)
        self.controller = TrainingJobController(
            api,
            self.recorder,
            lambda: True,
            watch_api=api,
            role_counts=role_counts,
            epoch_s=world.clock.seconds,
            monotonic_s=world.clock.seconds,
        )

    def look(self) -> None:
        """Reads what happened, and acts on it."""
        for reflector in self.controller.reflectors.values():
            reflector.follow_once()
        self.controller.try_pass()

    def settle(self) -> None:
        """Until nothing is left to write."""
        self.look()
        self.look()
        assert not self.account.refused


def add_training_job(world: World, training_job: dict[str, Any]) -> Any:
    """Stores it, as the API server does."""
    return world.ask(request.create(TRAININGJOBS, "ml", training_job))


def change_training_job(world: World, spec: dict[str, Any], name: str = "digits") -> None:
    """Merges fields into its spec, as a user would."""
    world.ask(request.merge_patch(TRAININGJOBS, "ml", name, {"spec": spec}))


def find_job(world: World, name: str = "digits") -> Any:
    """Its Job, as it is."""
    return world.ask(request.get(JOBS, "ml", name))


def find_status(world: World, name: str = "digits") -> Any:
    """Its status; {} before the first one."""
    return world.ask(request.get(TRAININGJOBS, "ml", name)).get("status") or {}


def end_job(world: World, kind: str, reason: str) -> None:
    """The Job ends."""
    now = world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    end = {"type": kind, "status": "True", "reason": reason, "message": "it ended"}
    status = {"startTime": now, "conditions": [{**end, "lastTransitionTime": now}]}
    world.change_job("digits", {"status": status}, "status")
