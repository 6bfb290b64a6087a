"""Prometheus itself reads EDL's rules and queries: each alert fires for its fault, and none other."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from e2e.cluster import build
from e2e.cluster.toolchain import PROMETHEUS

pytestmark = pytest.mark.e2e

FOLDER = Path(__file__).parents[1] / "deploy" / "monitoring"
RULES = FOLDER / "rules.yaml"

_BEFORE = 36
"""Scrapes, 15 s apart, before the fault begins."""
_NOW_S = 9 * 60
_YEAR_S = 365 * 86_400
_RECLAIM = "edl_reconciler_reclaim_seconds_bucket"
HEALTHY: Mapping[str, str] = {
    f'{_RECLAIM}{{le="4.0"}}': "0+2x48",
    f'{_RECLAIM}{{le="30.0"}}': "0+2x48",
    f'{_RECLAIM}{{le="+Inf"}}': "0+2x48",
    "edl_reconciler_starved_service_seconds": "3x48",
    'edl_reconciler_trainers_released_total{reason="ServicesFirst"}': "0+2x48",
    'edl_reconciler_trainers_released_total{reason="FairShare"}': "0+1x48",
    'edl_reconciler_trainers_released_total{reason="JobStopped"}': "0+60x48",
    "edl_reconciler_trainers": "40x48",
    'edl_reconciler_leader{instance="a"}': "1x48",
    'edl_reconciler_leader{instance="b"}': "0x48",
    **{
        f'edl_reconciler_reclaim_objective_burn_rate{{instance="{instance}",span="{span}"}}': rate
        for instance, span, rate in (
            *(("a", "1h", "0.5x48"), ("a", "6h", "0.8x48")),
            *(("b", "1h", "20x48"), ("b", "6h", "20x48")),  # a standby that has seen two services
        )
    },
    'edl_reconciler_reclaim_objective_services_total{result="missed"}': "1x24 2x23",
    "edl_reconciler_training_jobs_failing": "0x48",
    "edl_reconciler_training_jobs_pass_age_seconds": "5x48",
    "edl_reconciler_unmanaged_jobs_total": "0x48",
    'edl_reconciler_extender_registration{state="registered"}': "1x48",
    "edl_webhook_certificate_expiry_timestamp_seconds": f"{_YEAR_S}x48",
    "edl_extender_certificate_expiry_timestamp_seconds": f"{_YEAR_S}x48",
    "edl_extender_client_certificate_expiry_timestamp_seconds": "0x48",
    **{
        f'edl_{server}_policy_info{{version="a",source="configmap",stale="false"}}': "1x48"
        for server in ("extender", "reconciler", "webhook")
    },
    **{
        f"edl_{server}_watch_age_seconds": "61x48"
        for server in ("extender", "reconciler", "webhook")
    },
    **{
        f'edl_reconciler_api_answer_age_seconds{{instance="{instance}"}}': "2x24 7 2x23"
        for instance in ("a", "b")
    },
}
"""Series -> values of a cluster with bursts of services, quiet watches and jobs that end."""


_SILENT_LEASE = {
    f'edl_reconciler_api_answer_age_seconds{{instance="{instance}"}}': f"2x{_BEFORE - 1} 2+15x12"
    for instance in ("a", "b")
}
"""Nobody answers requests for the lease."""


def _then(before: str, after: str) -> str:
    """Values that change when the fault begins; both in promtool's notation, without a number."""
    return f"{before}x{_BEFORE - 1} {after}x12"


def _policy(server: str, stale: str) -> str:
    return f'edl_{server}_policy_info{{version="a",source="configmap",stale="{stale}"}}'


FAULTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "services wait for trainers that take half a minute": (
        "ReclaimSlow",
        {
            f'{_RECLAIM}{{le="4.0"}}': f"0+2x{_BEFORE} {2 * _BEFORE}x12",
            f'{_RECLAIM}{{le="30.0"}}': f"0+2x{_BEFORE} {2 * _BEFORE}x12",
            "edl_reconciler_starved_service_seconds": _then("3", "35"),
        },
    ),
    "a service waits, and nobody gives way": (
        "ServiceStarved",
        {"edl_reconciler_starved_service_seconds": f"3x{_BEFORE - 1} 0+15x12"},
    ),
    "a node is lost and its guaranteed trainers find no room": (
        "JobBelowMin",
        {'edl_reconciler_jobs_below_min{reason="NoRoom"}': f"_x{_BEFORE} 1x12"},
    ),
    "a node is lost, and the plan's reason changes when its pods are deleted": (
        "JobBelowMin",
        {
            'edl_reconciler_jobs_below_min{reason="AtMax"}': f"_x{_BEFORE} 1x2 stale",
            'edl_reconciler_jobs_below_min{reason="WaitingForRoom"}': f"_x{_BEFORE + 3} 1x9",
        },
    ),
    "two jobs take trainers from each other": (
        "Thrash",
        {
            'edl_reconciler_trainers_released_total{reason="FairShare"}': (
                f"0+1x{_BEFORE - 1} {_BEFORE}+40x12"
            )
        },
    ),
    "the API server is away, of which watches had heard nothing for a minute": (
        "WatchStale",
        {
            **{
                f"edl_{server}_watch_age_seconds": f"61x{_BEFORE - 1} 61+15x12"
                for server in ("extender", "reconciler", "webhook")
            },
            **_SILENT_LEASE,
            'edl_reconciler_leader{instance="a"}': _then("1", "0"),
        },
    ),
    "the API server is away, and its watches had just brought news": (
        "WatchStale",
        {
            **{
                f"edl_{server}_watch_age_seconds": f"1x{_BEFORE - 1} 1+15x12"
                for server in ("extender", "reconciler", "webhook")
            },
            **_SILENT_LEASE,
            'edl_reconciler_leader{instance="a"}': _then("1", "0"),
        },
    ),
    "one watch is silently dead": (
        "WatchStale",
        {"edl_extender_watch_age_seconds": f"61x{_BEFORE - 1} 61+15x12"},
    ),
    "both replicas of the webhook are gone": (
        "WebhookDown",
        {
            _policy("webhook", "false"): f"1x{_BEFORE - 1} stale",
            "edl_webhook_watch_age_seconds": f"61x{_BEFORE - 1} stale",
            "edl_webhook_certificate_expiry_timestamp_seconds": f"{_YEAR_S}x{_BEFORE - 1} stale",
        },
    ),
    "the API server does not reach the webhook": (
        "WebhookDown",
        {"edl_reconciler_unmanaged_jobs_total": f"0x{_BEFORE - 1} 1x12"},
    ),
    "the extender's certificate ends in a week": (
        "CertificateExpiring",
        {
            "edl_extender_certificate_expiry_timestamp_seconds": _then(
                str(_YEAR_S), str(_NOW_S + 7 * 86_400)
            )
        },
    ),
    "kube-scheduler's certificate has ended": (
        "CertificateExpiring",
        {"edl_extender_client_certificate_expiry_timestamp_seconds": _then("0", "1")},
    ),
    "an admin writes a policy that is not valid": (
        "PolicyRejected",
        {
            series: values
            for server in ("extender", "reconciler", "webhook")
            for series, values in {
                _policy(server, "false"): f"1x{_BEFORE - 1} stale",
                _policy(server, "true"): f"_x{_BEFORE} 1x12",
            }.items()
        },
    ),
    "both reconcilers are gone": (
        "ReconcilerDown",
        {
            series: f"{values.partition('x')[0]}x{_BEFORE - 1} stale"
            for series, values in HEALTHY.items()
            if series.startswith("edl_reconciler_")
        },
    ),
    "every tick fails": (
        "ReconcilerDown",
        {
            'edl_reconciler_leader{instance="a"}': _then("1", "0"),
            "edl_reconciler_trainers": _then("40", "0"),
        },
    ),
    "a burst misses the reclaim objective": (
        "ReclaimObjectiveBurns",
        {
            'edl_reconciler_reclaim_objective_burn_rate{instance="a",span="1h"}': _then("0.5", "8"),
            'edl_reconciler_reclaim_objective_burn_rate{instance="a",span="6h"}': _then("0.8", "2"),
            'edl_reconciler_reclaim_objective_services_total{result="missed"}': (
                f"2x{_BEFORE - 1} 2+4x12"
            ),
        },
    ),
    "requests about TrainingJobs fail": (
        "TrainingJobsFailing",
        {"edl_reconciler_training_jobs_failing": _then("0", "3")},
    ),
    "a pass over TrainingJobs hangs": (
        "TrainingJobsFailing",
        {"edl_reconciler_training_jobs_pass_age_seconds": f"5x{_BEFORE - 1} 61+15x12"},
    ),
    "the extender is gone": (
        "ExtenderDown",
        {
            _policy("extender", "false"): f"1x{_BEFORE - 1} stale",
            "edl_extender_watch_age_seconds": f"61x{_BEFORE - 1} stale",
            "edl_extender_certificate_expiry_timestamp_seconds": f"{_YEAR_S}x{_BEFORE - 1} stale",
        },
    ),
}
"""What happens -> the alert for it, and the series that show it."""


@pytest.fixture(scope="module")
def promtool() -> Path:
    """Prometheus' tool, built once."""
    return build.ensure(build.cache_root(os.environ), kit=PROMETHEUS).path("promtool")


def _expressions() -> list[str]:
    """Returns the queries of all panels."""
    pages = [json.loads(path.read_text("utf-8")) for path in (FOLDER / "dashboards").iterdir()]
    panels = [panel for page in pages for panel in page["panels"]]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def _run(promtool: Path, *arguments: str, cwd: Path) -> None:
    done = subprocess.run(
        [promtool, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_valid(promtool: Path) -> None:
    """With all of promtool's lints."""
    _run(
        promtool,
        "check",
        "rules",
        "--lint=all",
        "--lint-fatal",
        "rules.yaml",
        cwd=FOLDER,
    )


def test_every_query_of_a_dashboard_parses(promtool: Path, tmp_path: Path) -> None:
    """Prometheus' own parser reads them, with Grafana's variable replaced."""
    rules = [
        {"record": f"query{number}", "expr": expression.replace("$__rate_interval", "1m")}
        for number, expression in enumerate(_expressions())
    ]
    document = {"groups": [{"name": "queries", "rules": rules}]}
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump(document))

    _run(promtool, "check", "rules", "--lint=none", "queries.yaml", cwd=tmp_path)


def test_each_alert_fires_for_its_fault_and_none_other(promtool: Path, tmp_path: Path) -> None:
    """Within a minute of the fault; without one none fires."""
    (tmp_path / "rules.yaml").write_text(RULES.read_text("utf-8"))
    tests = [_case("", "health", {})]
    tests += [_case(alert, name, series) for name, (alert, series) in FAULTS.items()]
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))

    assert {alert for alert, _ in FAULTS.values()} == {
        rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    }
    _run(promtool, "test", "rules", "tests.yaml", cwd=tmp_path)


def _case(alert: str, name: str, series: Mapping[str, str]) -> dict[str, object]:
    """Returns a test of promtool: which alerts fire just before the fault, and a minute after it began."""
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    expected = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else []
    return {
        "name": name,
        "interval": "15s",
        "input_series": [
            {"series": key, "values": values} for key, values in {**HEALTHY, **series}.items()
        ],
        "promql_expr_test": [
            {"expr": firing, "eval_time": f"{_NOW_S - 15}s", "exp_samples": []},
            {
                "expr": f"{firing} > bool 0",
                "eval_time": f"{_NOW_S + 60}s",
                "exp_samples": expected,
            },
        ],
    }
