"""Dashboards and alerts: every query names metrics and labels that exist, every alert has a runbook."""

import json
import re
from pathlib import Path

import pytest
import yaml

from bench import metrics_page, monitoring
from runtime.metric_names import MetricType

ROOT = Path(__file__).parents[2]
ALERTS = [
    *("ReclaimSlow", "ServiceStarved", "JobBelowMin", "Thrash", "WatchStale", "WebhookDown"),
    *("CertificateExpiring", "PolicyRejected", "ReconcilerDown", "ExtenderDown"),
    *("ReclaimObjectiveBurns", "TrainingJobsFailing"),
]
_METRIC = re.compile(r"\bedl_\w+")
_GROUPED = re.compile(r"\bby \(([\w, ]+)\)")
_MATCHED = re.compile(r"(\w+)(?:=~|!~|!=|=)\"")


@pytest.fixture(scope="module")
def series() -> dict[str, set[str]]:
    """The series that the servers export, each with its labels."""
    labels: dict[str, set[str]] = {}
    for metrics in metrics_page.component_metrics().values():
        for metric in metrics.descriptions:
            labels[metric.name] = set(metric.labels)
            if metric.type is MetricType.HISTOGRAM:
                del labels[metric.name]
                for ending in ("sum", "count"):
                    labels[f"{metric.name}_{ending}"] = set(metric.labels)
                labels[f"{metric.name}_bucket"] = {*metric.labels, "le"}
    return labels


@pytest.mark.parametrize(("where", "expression"), list(monitoring.expressions()))
def test_a_query_names_what_exists(
    where: str, expression: str, series: dict[str, set[str]]
) -> None:
    """Metrics by their full name, and labels that one of them has or the scrape adds."""
    names = set(_METRIC.findall(expression))
    used = set(_MATCHED.findall(expression))
    for group in _GROUPED.findall(expression):
        used |= {label.strip() for label in group.split(",")}

    assert names, where
    assert names <= set(series), where
    assert used <= {"instance"}.union(*(series[name] for name in names)), where


def test_bounds_of_buckets_exist() -> None:
    """A query for another bound finds no series."""
    reconciler = metrics_page.component_metrics()["reconciler"].text().decode()
    for _, expression in monitoring.expressions():
        for bound in re.findall(r'\ble="([^"]+)"', expression):
            assert f'edl_reconciler_reclaim_seconds_bucket{{le="{bound}"}}' in reconciler


def test_the_files_are_what_the_sources_say() -> None:
    """Where this fails: `make monitoring`."""
    for name, text in monitoring.files().items():
        assert (monitoring.FOLDER / name).read_text("utf-8") == text
    written = {path.name for path in (monitoring.FOLDER / "dashboards").iterdir()}
    assert written == {f"{name}.json" for name in monitoring.DASHBOARDS}


def test_the_command_writes_the_files(tmp_path: Path) -> None:
    """All of them, into any folder."""
    assert monitoring.main(["--output", str(tmp_path)]) == 0
    assert {
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()
    } == set(monitoring.files())


def test_every_alert_has_a_runbook() -> None:
    """A section of docs/operating.md: what a user sees, what to look at, what to do."""
    page = (ROOT / "docs" / "operating.md").read_text("utf-8")
    (group,) = yaml.safe_load(monitoring.RULES.read_text("utf-8"))["groups"]

    assert [rule["alert"] for rule in group["rules"]] == ALERTS
    for rule in group["rules"]:
        assert rule["annotations"]["runbook"] == f"docs/operating.md#{rule['alert'].lower()}"
        section = page.partition(f"\n### {rule['alert']}\n")[2].partition("\n### ")[0]
        for part in ("**What users see.**", "**Look at.**", "**Do.**"):
            assert part in section, rule["alert"]
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}


def test_panels_of_a_dashboard_do_not_overlap() -> None:
    """Two in a row; each has a number and a name of its own."""
    for name in monitoring.DASHBOARDS:
        page = json.loads(monitoring.files()[f"dashboards/{name}.json"])
        places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in page["panels"]}
        titles = {panel["title"] for panel in page["panels"]}

        assert len(places) == len(titles) == len(page["panels"])


def test_all_files_are_applied_together() -> None:
    """`kubectl apply -k deploy/monitoring` takes each, but the source that plain Prometheus reads."""
    listed = yaml.safe_load((monitoring.FOLDER / "kustomization.yaml").read_text("utf-8"))
    (dashboards,) = listed["configMapGenerator"]
    names = {path.name for path in monitoring.FOLDER.glob("*.yaml")}

    assert set(listed["resources"]) == names - {"kustomization.yaml", "rules.yaml"}
    assert set(dashboards["files"]) == {f"dashboards/{name}.json" for name in monitoring.DASHBOARDS}
