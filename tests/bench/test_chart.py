"""What the chart says of its values is what the code says."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from bench import chart
from bench.chart import CHART, ChartValues
from policy.document.model import Policy
from webhook.settings import WebhookSettings


@pytest.mark.parametrize("name", ["values.yaml", "values.schema.json", "README.md"])
def test_the_files_are_those_that_the_code_writes(name: str) -> None:
    """`make chart` after a change of a setting, of the policy's model or of deploy/base."""
    assert (CHART / name).read_text(encoding="utf-8") == chart.files()[name]


def test_the_command_writes_the_files_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    """`--help` wrote them."""
    assert chart.main(["--output", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == set(chart.files())
    with pytest.raises(SystemExit):
        chart.main(["--nosuch"])


def test_the_defaults_are_valid() -> None:
    """By the models from which the schema comes."""
    ChartValues.model_validate(yaml.safe_load((CHART / "values.yaml").read_text()))


@pytest.mark.parametrize("overlay", ["single-node", "high-availability", "kwok"])
def test_the_values_of_overlays_are_valid(overlay: str) -> None:
    """Laid over the defaults, as Helm does."""
    over = yaml.safe_load((CHART / f"values-{overlay}.yaml").read_text())
    defaults = chart.values()
    for key, value in over.items():
        defaults[key] = {**defaults[key], **value} if isinstance(value, dict) else value

    ChartValues.model_validate(defaults)


def test_settings_that_the_manifests_decide_are_not_offered() -> None:
    """Another address or file would not fit ports, probes and volumes."""
    offered = chart.settings_model(WebhookSettings).model_fields

    assert {"threads", "log_level"} <= set(offered)
    assert not {"listen", "kubeconfig", "tls_cert", "namespace"} & set(offered)


def test_the_readme_has_the_defaults_of_settings() -> None:
    """Those that the servers have, although the values leave settings out."""
    lines = (CHART / "README.md").read_text(encoding="utf-8").splitlines()

    for start in (
        "| `reconciler.settings.leaseSeconds` | `15.0` |",
        '| `webhook.settings.logLevel` | `"info"` |',
        "| `reconciler.settings.snapshotFolder` |  |",
    ):
        assert [line for line in lines if line.startswith(start)], start


def test_every_field_of_the_policy_is_in_the_schema() -> None:
    """By its name in YAML; amounts may be numbers there."""
    definitions: dict[str, Any] = chart.schema()["$defs"]
    fields = {str(field.alias) for field in Policy.model_fields.values()}

    assert set(definitions["Policy"]["properties"]) == fields
    assert not definitions["Policy"]["additionalProperties"]
    headroom = definitions["Reserve"]["properties"]["headroom"]["additionalProperties"]
    assert headroom["type"] == ["string", "number"]


def test_unknown_values_are_refused() -> None:
    """A word that is spelled wrong would else do nothing, silently."""
    with pytest.raises(ValidationError, match="replica"):
        ChartValues.model_validate(chart.values() | {"replica": 1})
