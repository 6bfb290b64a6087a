"""The cluster state that admission needs: policy, PriorityClasses, scheduler check, the webhook's image.

`webhook.app` gets the context of each decision from here. Watches keep it up to date, so that a review
never waits for a request to the API server.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kube import decode, request
from kube.active import ActivePolicy
from kube.api import Api
from kube.decode import ConfigMap, PriorityClass
from kube.reflector import Reflector, stop_all
from policy import scheduling
from policy.admission.views import PodView
from policy.names import POLICY_CONFIGMAP, SCHEDULING_CONFIGMAP
from policy.priority_classes import PriorityClassValues
from policy.scheduling import SchedulerCheck
from webhook.review import AdmissionContext

DEPLOYMENT = "edl-webhook"
_CONTAINER = "webhook"


class LiveContext:
    """An `AdmissionContext` that watches keep up to date; `current` never blocks."""

    def __init__(self, api: Api, namespace: str, master_image: str = "") -> None:
        self._master_image = master_image
        self._namespace = namespace
        self._classes: Mapping[str, PriorityClassValues] = {}
        self._check = SchedulerCheck()
        self._policy, check = (
            Reflector(api, request.CONFIGMAPS, decode.configmap, namespace=namespace, name=name)
            for name in (POLICY_CONFIGMAP, SCHEDULING_CONFIGMAP)
        )
        classes: Reflector[PriorityClass] = Reflector(
            api, request.PRIORITYCLASSES, decode.priority_class
        )
        self.active = ActivePolicy.of(self._policy)
        classes.listen(self._class_changed)
        check.listen(self._check_changed)
        self.reflectors: dict[str, Reflector[Any]] = {
            "configmaps": self._policy,
            "priorityclasses": classes,
            "scheduling": check,
        }
        if not master_image:
            image = Reflector(
                api, request.DEPLOYMENTS, _image, namespace=namespace, name=DEPLOYMENT
            )
            image.listen(self._image_changed)
            self.reflectors["deployments"] = image

    @property
    def synced(self) -> bool:
        """Whether policy and classes have been listed; before that, all classes seem to be missing.

        The scheduler check need not have been read: pods without the marker can always be scheduled.
        """
        return all(self.reflectors[name].synced for name in ("configmaps", "priorityclasses"))

    def age_s(self, now_s: float) -> float:
        """Returns the seconds since the last message of the watch that has been silent longest."""
        return max(reflector.age_s(now_s) for reflector in self.reflectors.values())

    def on_policy(self, wake: Callable[[], None]) -> None:
        """Calls `wake`, on the watch thread, after every change of the policy."""
        self._policy.listen(lambda _old, _new: wake())

    def current(self) -> AdmissionContext:
        """Returns the current context."""
        active = self.active.current
        return AdmissionContext(
            active.policy,
            self._classes,
            active.version,
            self._namespace,
            self._master_image,
            scheduling.in_force(active.policy, self._check),
            active.usable,
        )

    def start(self) -> None:
        """Starts the watches."""
        for reflector in self.reflectors.values():
            reflector.start()

    def stop(self) -> None:
        """Stops the watches."""
        stop_all(self.reflectors.values())

    def _image_changed(self, _: str | None, new: str | None) -> None:
        """Sets the image of masters: the webhook's own image, which contains all of EDL's servers."""
        self._master_image = new or ""

    def _check_changed(self, _: ConfigMap | None, new: ConfigMap | None) -> None:
        """Sets the scheduler check; without its ConfigMap, the registration is unknown and pods get no marker."""
        self._check = SchedulerCheck.from_data({} if new is None else new.data)

    def _class_changed(self, old: PriorityClass | None, new: PriorityClass | None) -> None:
        classes = dict(self._classes)
        if old is not None:
            classes.pop(old.name, None)
        if new is not None:
            classes[new.name] = new.values
        self._classes = classes


def _image(deployment: Mapping[str, Any]) -> str | None:
    """Returns the image of the webhook's container in its Deployment; "" for none."""
    pod = PodView.parse(deployment["spec"].get("template"))
    return next((c.image for c in pod.containers if c.name == _CONTAINER), "")
