"""What the cluster says and admission needs: the policy ConfigMap and the PriorityClasses.

Who calls: `webhook.app`, for the state each decision rests on. Two watches; no request to the
API server while one of its own waits for us.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kube import request
from kube.active import ActivePolicy, policy_reflector
from kube.client import Api
from kube.reflector import Reflector
from policy.mutation import PriorityClass
from webhook.review import State


@dataclass(frozen=True, slots=True)
class _Named:
    """A PriorityClass and its name."""

    name: str
    values: PriorityClass


class Live:
    """Follows policy and classes; `state` never blocks."""

    def __init__(self, api: Api, namespace: str, master_image: str = "") -> None:
        self._master_image = master_image
        self.active = ActivePolicy()
        self._namespace = namespace
        self._classes: Mapping[str, PriorityClass] = {}
        self._policy = policy = policy_reflector(api, namespace)
        classes: Reflector[_Named] = Reflector(api, request.PRIORITYCLASSES, _priority_class)
        self.active.follow(policy)
        classes.listen(self._class_changed)
        self.reflectors: dict[str, Reflector[Any]] = {
            "configmaps": policy,
            "priorityclasses": classes,
        }

    @property
    def synced(self) -> bool:
        """Whether both first lists are in; before, every class seems to be missing."""
        return all(reflector.synced for reflector in self.reflectors.values())

    def on_policy(self, wake: Callable[[], None]) -> None:
        """Calls `wake`, on the watch thread, after every change of the policy."""
        self._policy.listen(lambda _old, _new: wake())

    def state(self) -> State:
        """What to decide on, now."""
        active = self.active.current
        return State(
            active.policy, self._classes, active.version, self._namespace, self._master_image
        )

    def start(self) -> None:
        """Begins to watch."""
        for reflector in self.reflectors.values():
            reflector.start()

    def stop(self) -> None:
        """Ends both watches."""
        for reflector in self.reflectors.values():
            reflector.request_stop()
        for reflector in self.reflectors.values():
            reflector.stop()

    def _class_changed(self, old: _Named | None, new: _Named | None) -> None:
        classes = dict(self._classes)
        if old is not None:
            classes.pop(old.name, None)
        if new is not None:
            classes[new.name] = new.values
        self._classes = classes


def _priority_class(obj: Mapping[str, Any]) -> _Named:
    """One scheduling.k8s.io/v1 PriorityClass."""
    values = PriorityClass(
        int(obj.get("value") or 0),
        obj.get("preemptionPolicy") or "PreemptLowerPriority",
        bool(obj.get("globalDefault")),
    )
    return _Named(obj["metadata"]["name"], values)
