"""The cluster state that admission needs: the policy ConfigMap and the PriorityClasses.

Who calls: `webhook.app`, for the context of each decision. It uses two watches, so that a review
never waits for a request to the API server.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kube import decode, request
from kube.active import ActivePolicy, policy_reflector
from kube.api import Api
from kube.decode import PriorityClass
from kube.reflector import Reflector
from policy.priority_classes import PriorityClassValues
from webhook.review import AdmissionContext


class LiveContext:
    """An `AdmissionContext` that two watches keep up to date; `current` never blocks."""

    def __init__(self, api: Api, namespace: str, master_image: str = "") -> None:
        self._master_image = master_image
        self.active = ActivePolicy()
        self._namespace = namespace
        self._classes: Mapping[str, PriorityClassValues] = {}
        self._policy = policy = policy_reflector(api, namespace)
        classes: Reflector[PriorityClass] = Reflector(
            api, request.PRIORITYCLASSES, decode.priority_class
        )
        self.active.follow(policy)
        classes.listen(self._class_changed)
        self.reflectors: dict[str, Reflector[Any]] = {
            "configmaps": policy,
            "priorityclasses": classes,
        }

    @property
    def synced(self) -> bool:
        """Whether both first lists are complete; before that, all classes seem to be missing."""
        return all(reflector.synced for reflector in self.reflectors.values())

    def on_policy(self, wake: Callable[[], None]) -> None:
        """Calls `wake`, on the watch thread, after every change of the policy."""
        self._policy.listen(lambda _old, _new: wake())

    def current(self) -> AdmissionContext:
        """The current context."""
        active = self.active.current
        return AdmissionContext(
            active.policy, self._classes, active.version, self._namespace, self._master_image
        )

    def start(self) -> None:
        """Starts both watches."""
        for reflector in self.reflectors.values():
            reflector.start()

    def stop(self) -> None:
        """Stops both watches."""
        for reflector in self.reflectors.values():
            reflector.request_stop()
        for reflector in self.reflectors.values():
            reflector.stop()

    def _class_changed(self, old: PriorityClass | None, new: PriorityClass | None) -> None:
        classes = dict(self._classes)
        if old is not None:
            classes.pop(old.name, None)
        if new is not None:
            classes[new.name] = new.values
        self._classes = classes
