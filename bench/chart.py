"""`python -m bench.chart`: writes the chart's values, their schema and its README from the code.

The settings of servers and the policy are those of the pydantic models that the servers read, so
`helm install` refuses what they would refuse; replicas and resources are those of `deploy/base`.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.alias_generators import to_camel
from pydantic_core import to_jsonable_python

from bench import policy_schema
from extender.settings import ExtenderSettings
from page.settings import PageSettings
from policy.document.model import Policy
from policy.names import POLICY_KEY
from reconciler.settings import ReconcilerSettings
from runtime.command_line import Parser
from runtime.settings import Settings
from webhook.settings import WebhookSettings

DEPLOY = Path(__file__).parents[1] / "deploy"
CHART = DEPLOY / "chart"
_PAGE = DEPLOY / "components" / "page" / "page.yaml"
_FIXED = {
    "kubeconfig", "context", "namespace", "listen", "probe_listen", "announce_file", "tls_cert",
    "tls_key", "client_ca", "certificate_dir", "tls_secret", "tls_dir", "identity", "hosts",
}  # fmt: skip
"""Settings with fixed values in the manifests, which other parts of them depend on."""
_REPLICATED = ("webhook", "reconciler")
_SERVERS: tuple[type[Settings], ...] = (
    *(WebhookSettings, ExtenderSettings),
    *(ReconcilerSettings, PageSettings),
)
_ANY_OBJECT: dict[str, Any] = {"type": "object"}
_SETTINGS = "Its settings, in the words of its flags; those left out have their defaults."
_HOST, _PART = r"[a-z0-9]+([.-]+[a-z0-9]+)*(:[0-9]+)?", r"[a-z0-9]+([._-]+[a-z0-9]+)*"
_REPOSITORY = rf"^(({_HOST}/)?{_PART}(/{_PART})*)?$"
"""A colon is in front of a port only: behind the last slash it would begin a tag."""
_QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"
_README = """\
# The chart of EDL

[docs/install.md](../../docs/install.md) says how to install EDL. The objects are those of [deploy/base](../base), which the
folder `base` of the chart leads to; a value changes a field of them. `values-*.yaml` are the overlays of
[deploy/overlays](../overlays). `make chart` writes this file, `values.yaml` and `values.schema.json`.

| Value | Default | Meaning |
|---|---|---|
"""


class _Values(BaseModel):
    """Base of all parts of the values: camelCase, without unknown keys."""

    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, use_attribute_docstrings=True
    )


Amount = Annotated[str, Field(pattern=_QUANTITY)]


class Amounts(_Values):
    """An amount of each resource."""

    cpu: Amount | None = None
    memory: Amount | None = None


class Resources(_Values):
    """Resources of a container."""

    requests: Amounts = Amounts()
    limits: Amounts = Amounts()


class Image(_Values):
    """The image of all servers, of masters and of parameter servers."""

    repository: Annotated[str, Field(pattern=_REPOSITORY)] = ""
    """The repository to which you pushed the image, without a tag; there is no default."""
    tag: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")] = "0.1.0"
    """Its tag; unused with a digest."""
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    """Its digest, which a registry cannot exchange, such as sha256:...; "" for the tag."""


class Affinity(_Values):
    """What decides about the nodes of a pod (core/v1)."""

    node_affinity: dict[str, Any] = {}
    pod_affinity: dict[str, Any] = {}
    pod_anti_affinity: dict[str, Any] = {}


class Toleration(_Values):
    """A taint that does not keep the servers away (core/v1)."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoExecute", "NoSchedule", "PreferNoSchedule"] = ""
    toleration_seconds: int = 0


class Server(_Values):
    """One of EDL's servers."""

    resources: Resources = Resources()
    """Requests and limits of each replica."""


_COMPOSED = ConfigDict(use_attribute_docstrings=False)
"""Of models without a source whose docstrings could be read: looking for it takes a while."""


class _ComposedSettings(_Values):
    model_config = _COMPOSED


class _ComposedServer(Server):
    model_config = _COMPOSED


class NetworkPolicies(_Values):
    """NetworkPolicies."""

    enabled: bool = True
    """Whether the ports of the servers are closed but for those of the API (docs/install.md)."""
    jobs: bool = False
    """Whether the reconciler may make one for each job with a master (`policy.networkPolicies`)."""


def settings_model(settings: type[Settings]) -> type[BaseModel]:
    """Returns the settings of a server that an admin may change, as a model in camelCase."""
    fields: dict[str, Any] = {
        name: (field.annotation, field)
        for name, field in settings.model_fields.items()
        if name not in _FIXED
    }
    return create_model(
        f"{settings.component.title()}Settings", __base__=_ComposedSettings, **fields
    )


def _server(settings: type[Settings], **fields: Any) -> type[BaseModel]:
    described: Any = Field(default={}, description=_SETTINGS)
    return create_model(
        settings.component.title(),
        __base__=_ComposedServer,
        __doc__=f"The {settings.component}.",
        settings=(settings_model(settings), described),
        **fields,
    )


Replicas = Annotated[
    int,
    Field(ge=1, le=10, description="How many; with one there is no PodDisruptionBudget."),
]


Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class ChartValues(_Values):
    """All values of the chart."""

    image: Image
    image_pull_secrets: list[dict[Literal["name"], str]]
    """Names of Secrets for the registry, such as [{name: registry}]."""
    policy: Policy
    """The policy (docs/policy.md); fields left out have their defaults."""
    webhook: _server(WebhookSettings, replicas=(Replicas, 2))  # type: ignore[valid-type]
    extender: _server(  # type: ignore[valid-type]
        ExtenderSettings,
        enabled=(
            bool,
            Field(default=True, description="Whether it runs; kube-scheduler does without it."),
        ),
    )
    reconciler: _server(ReconcilerSettings, replicas=(Replicas, 2))  # type: ignore[valid-type]
    page: _server(  # type: ignore[valid-type]
        PageSettings,
        enabled=(bool, Field(default=False, description="Whether it runs (docs/page.md).")),
        tls_secret=(
            Annotated[str, Field(pattern=r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$", max_length=253)],
            Field(
                default="",
                description=(
                    "Secret with tls.crt and tls.key, to serve it to the network; with none it is "
                    "reached by port-forward alone."
                ),
            ),
        ),
    )
    node_selector: dict[str, str]
    """Labels of the nodes that all servers run on."""
    tolerations: list[Toleration]
    """Taints of nodes that do not keep the servers away."""
    affinity: Affinity
    """More of what decides about their nodes; its `podAntiAffinity` takes the place of that by zones."""
    spread: Literal["preferred", "required"]
    """Whether two replicas of a server may share a node if there is no other node."""
    network_policies: NetworkPolicies
    namespaces: Annotated[list[Namespace], Field(json_schema_extra={"uniqueItems": True})]
    """Where the reconciler may write; [] is everywhere. Name the same ones in `policy.namespaces`."""


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of the values: every key may be left out, unknown ones are refused."""
    document = ChartValues.model_json_schema(by_alias=True)
    document["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    document["properties"]["global"] = _ANY_OBJECT  # Helm's own
    usable = dict(_walk(document, _usable))
    policy = policy_schema.schema()
    definitions = policy.pop("$defs")
    del policy["$schema"], policy["$id"]
    usable["$defs"] |= {**definitions, "Policy": policy}
    _require(usable, values())
    return usable


def _require(document: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuses a null, with which Helm takes a default away, where the templates need one."""
    document["required"] = [*defaults]
    for key, part in document["properties"].items():
        name = part.get("$ref", "").rpartition("/")[2]
        if name and name not in ("Policy", ""):
            document["$defs"][name]["required"] = [*defaults[key]]


def _walk(item: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(item, dict):
        return change({key: _walk(value, change) for key, value in item.items()})
    return [_walk(value, change) for value in item] if isinstance(item, list) else item


def _usable(part: dict[str, Any]) -> dict[str, Any]:
    """Titles say nothing, defaults are the base's, paths are texts, and with a null Helm takes a value away."""
    cleaned = {key: value for key, value in part.items() if key not in ("required", "default")}
    if isinstance(cleaned.get("title"), str):
        del cleaned["title"]
    if cleaned.get("format") == "path":
        del cleaned["format"]
    kinds = cleaned.get("anyOf", [])
    if len(kinds) == 2 and kinds[1] == {"type": "null"}:  # noqa: PLR2004 - it may be left out
        del cleaned["anyOf"]
        cleaned |= kinds[0]
    return cleaned


def values() -> dict[str, Any]:
    """Returns the default values, which `deploy/base` has."""
    names = ("webhook", "extender", "reconciler")
    servers = {name: _of_file(DEPLOY / "base" / f"{name}.yaml") for name in names}
    (policy,) = yaml.safe_load_all((DEPLOY / "base" / "policy.yaml").read_text())
    document = yaml.safe_load(policy["data"][POLICY_KEY])
    return {
        "image": Image().model_dump(by_alias=True),
        "imagePullSecrets": [],
        "policy": {key: part for key, part in document.items() if isinstance(part, dict)},
        "webhook": servers["webhook"],
        "extender": {"enabled": True, **servers["extender"]},
        "reconciler": servers["reconciler"],
        "page": {"enabled": False, "tlsSecret": "", **_of_file(_PAGE)},
        "nodeSelector": {},
        "tolerations": [],
        "affinity": {},
        "spread": "preferred",
        "networkPolicies": NetworkPolicies().model_dump(by_alias=True),
        "namespaces": [],
    }


def _of_file(path: Path) -> dict[str, Any]:
    documents = yaml.safe_load_all(path.read_text())
    (deployment,) = (item for item in documents if item["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    replicas = {"replicas": deployment["spec"]["replicas"]} if path.stem in _REPLICATED else {}
    return {**replicas, "settings": {}, "resources": container["resources"]}


def files() -> dict[str, str]:
    """Name -> text of the files of the chart that are written from the code."""
    rows = [*_rows(schema(), values())]
    table = "".join(f"| `{name}` | {default} | {meaning} |\n" for name, default, meaning in rows)
    return {
        "values.schema.json": json.dumps(schema(), indent=1) + "\n",
        "values.yaml": _values_text(rows),
        "README.md": _README + table,
    }


def _rows(
    document: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Value, default and meaning, of all that is not the policy's."""
    of_settings = _defaults_of_settings()

    def walk(part: Mapping[str, Any], default: Any, path: str) -> Iterator[tuple[str, str, str]]:
        while "$ref" in part:
            named = document["$defs"][part["$ref"].rpartition("/")[2]]
            part = {**named, **{key: value for key, value in part.items() if key != "$ref"}}
        leaf = path in ("policy", "global", "affinity") or path.endswith(
            (".settings", ".resources")
        )
        if "properties" in part and not leaf:
            for key, value in part["properties"].items():
                below = default.get(key) if isinstance(default, Mapping) else None
                yield from walk(value, below, f"{path}.{key}".lstrip("."))
        elif path != "global":
            meaning = " ".join(str(part.get("description", "")).split()).replace("|", "\\|")
            yield path, f"`{json.dumps(default)}`", meaning
        if path.endswith(".settings"):
            for key, value in part["properties"].items():
                meaning = " ".join(str(value.get("description", "")).split()).replace("|", "\\|")
                yield f"{path}.{key}", of_settings.get(f"{path}.{key}", ""), meaning

    return walk(document, defaults, "")


def _defaults_of_settings() -> dict[str, str]:
    """Value -> the server's default as JSON, for settings that have a default."""
    return {
        f"{settings.component}.settings.{field.alias}": f"`{json.dumps(to_jsonable_python(field.default))}`"
        for settings in _SERVERS
        for field in settings_model(settings).model_fields.values()
        if field.default is not None
    }


def _values_text(rows: list[tuple[str, str, str]]) -> str:
    """values.yaml: each top-level part with its meanings above it."""
    lines = ["# Written by `make chart`; README.md explains every value.\n"]
    for key, default in values().items():
        meanings = [(name, text) for name, _, text in rows if name.split(".")[0] == key and text]
        lines += [f"# {name}: {text}\n" for name, text in meanings if ".settings." not in name]
        lines.append(yaml.safe_dump({key: default}, sort_keys=False))
    return "".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the files.

    Returns:
        0.
    """
    parser = Parser(prog="python -m bench.chart", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=CHART, help="the folder; default: %(default)s"
    )
    folder: Path = parser.parse_args(argv).output
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
