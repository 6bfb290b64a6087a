"""The parts of the kubernetes package that EDL uses: connection settings and the pool of connections.

`import kubernetes` loads clients for streams, watches and OpenID too, which cost each command of users
0.2 s of processor time. So the package itself does not run here, its modules are found in its folder,
and OpenID, which some kubeconfigs name, is loaded when it is used. Where somebody has imported the
package before, nothing is different.
"""

import importlib
import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

_PACKAGE, _USER = "kubernetes", "kubernetes.config.kube_config"
_OAUTHLIB, _OAUTH2, _SESSIONS = "oauthlib", "oauthlib.oauth2", "requests_oauthlib"


class _Oauthlib(ModuleType):
    """Stands for oauthlib; the first use of it imports the package."""

    def __getattr__(self, name: str) -> Any:
        importlib.import_module(_OAUTH2)
        return getattr(sys.modules[_OAUTHLIB], name)


def _oauth2_session(*arguments: object, **named: object) -> Any:
    """Creates a session of OpenID with the arguments of OAuth2Session, which is imported now."""
    return importlib.import_module(_SESSIONS).OAuth2Session(*arguments, **named)


def _import_parts() -> None:
    spec = find_spec(_PACKAGE)
    if spec is None:  # pragma: no cover - it is a dependency
        raise ModuleNotFoundError(_PACKAGE, name=_PACKAGE)
    sys.modules[_PACKAGE] = module_from_spec(spec)  # with its path, and without its imports
    sessions = ModuleType(_SESSIONS)
    sessions.OAuth2Session = _oauth2_session  # type: ignore[attr-defined] # a module made here
    substitutes = {_OAUTHLIB: _Oauthlib(_OAUTHLIB), _OAUTH2: ModuleType(_OAUTH2)}
    substitutes[_SESSIONS] = sessions
    absent = {name: module for name, module in substitutes.items() if name not in sys.modules}
    sys.modules.update(absent)
    try:
        importlib.import_module(_USER)
    finally:
        for name in absent:
            del sys.modules[name]


if _PACKAGE not in sys.modules:
    _import_parts()

from kubernetes.client.configuration import Configuration  # noqa: E402 - after the imports above
from kubernetes.client.rest import RESTClientObject  # noqa: E402
from kubernetes.config import (  # noqa: E402
    ConfigException,
    list_kube_config_contexts,
    load_incluster_config,
    load_kube_config,
)
from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION  # noqa: E402

__all__ = [
    "KUBE_CONFIG_DEFAULT_LOCATION",
    "ConfigException",
    "Configuration",
    "RESTClientObject",
    "list_kube_config_contexts",
    "load_incluster_config",
    "load_kube_config",
]
