"""`python -m bench.metrics_page`: writes docs/metrics.md from the registries of the components."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kubernetes.client.configuration import Configuration

import extender.app
import reconciler.app
from bench import written_page
from extender.settings import ExtenderSettings
from kube.client import Client
from master.metrics import MasterMetrics
from page.service import build as build_page
from page.settings import PageSettings
from pserver.metrics import PserverMetrics
from reconciler.settings import ReconcilerSettings
from runtime.metrics import MetricDescription, Metrics
from runtime.serve import WebService
from webhook.server import WebhookServer
from webhook.settings import WebhookSettings

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
_INTRODUCTION = """# Metrics

`make metrics-page` writes this page from the components' registries; do not edit it.

Each process serves its metrics in Prometheus' text format at `GET /metrics`, without client certificate or
token: extender, page, reconciler and webhook on port 8080, which has their probes, the others on their only port. Names follow Prometheus' conventions: `edl_<component>_<name>`,
base units, `_total` for counters and for nothing else. Labels come from closed sets; `reason` is a code of
[reasons.md](reasons.md), and `cause` of lost seconds is one of those or `Evicted` (by kube-scheduler's preemption, a drain or a user) or
`Failed`. Only the figures `edl_reconciler_job_*` have names, of the 50 oldest jobs (`EDL_RECONCILER_NAMED_JOBS`, 0 for none).

Of the two reconcilers the one that leads exports figures of jobs, services and the cluster; the other exports none, or 0, so that
sums over both are right. A service is any pod that is not training, those of the system included. What it waited for (`cause`):
`free` nothing, `waited` room that came without EDL, `released` trainers that EDL released for it, `preempted` victims of
kube-scheduler.

A histogram `x` is exported as the series `x_bucket`, `x_sum` and `x_count`; the client library adds a gauge
`x_created`, the time from which it counts, as it does for counters that a component increments. Every process
also exports the client library's metrics of process and interpreter (`process_*`, `python_gc_*`).
Trainers serve no metrics: those of the master and the parameter servers describe their work.
"""


def component_metrics() -> dict[str, Metrics]:
    """Returns the metrics of each component by its name, as its application registers them.

    Nothing is started, and no address is contacted.
    """
    connection = Configuration()
    webhook = WebhookServer(Client(connection), WebhookSettings(), managed=True)
    return {
        "extender": _service_metrics(extender.app.build(ExtenderSettings(), connection)),
        "master": MasterMetrics().metrics,
        "page": _service_metrics(build_page(PageSettings(), connection)),
        "pserver": PserverMetrics().metrics,
        "reconciler": _service_metrics(reconciler.app.build(ReconcilerSettings(), connection)),
        "webhook": _service_metrics(webhook.service()),
    }


def page(components: Mapping[str, Metrics]) -> str:
    """Returns the text of the page: a table for each component, its rows by name."""
    tables = [_table(name, components[name].descriptions) for name in sorted(components)]
    return "\n".join([_INTRODUCTION, *tables])


def _service_metrics(service: WebService) -> Metrics:
    return service.app.metrics


def _table(component: str, descriptions: Sequence[MetricDescription]) -> str:
    head = "| Name | Type | Labels | Meaning |\n|---|---|---|---|\n"
    return f"## `{component}/`\n\n{head}" + "".join(map(_row, descriptions))


def _row(description: MetricDescription) -> str:
    labels = ", ".join(f"`{label}`" for label in description.labels) or "-"
    cells = (
        f"`{description.name}`",
        description.type,
        labels,
        description.documentation.replace("|", "\\|"),
    )
    return f"| {' | '.join(cells)} |\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the page.

    Returns:
        0.
    """
    return written_page.write(
        "bench.metrics_page", __doc__, PAGE, lambda: page(component_metrics()), argv
    )


if __name__ == "__main__":
    sys.exit(main())
