"""The reference page of metrics: it is what the registries say, and they say everything."""

import threading
from pathlib import Path

import pytest

from bench import metrics_page
from runtime.metric_names import check
from runtime.metrics import Metrics


@pytest.fixture(scope="module")
def components() -> dict[str, Metrics]:
    """The metrics of all components."""
    return metrics_page.component_metrics()


def test_the_page_is_what_the_registries_say(components: dict[str, Metrics]) -> None:
    """Where this fails: `make metrics-page`."""
    assert metrics_page.PAGE.read_text("utf-8") == metrics_page.page(components)


def test_every_exported_metric_is_described(components: dict[str, Metrics]) -> None:
    """With its type and help text; the other metrics are those of process and interpreter."""
    assert set(components) == {"extender", "master", "page", "pserver", "reconciler", "webhook"}
    for component, metrics in components.items():
        exported = {
            (f"{family.name}_total" if family.type == "counter" else family.name): (
                family.type,
                family.documentation,
            )
            for family in metrics.registry.collect()
        }
        own = {name: about for name, about in exported.items() if name.startswith("edl_")}
        described = {
            description.name: (description.type, description.documentation)
            for description in metrics.descriptions
        }

        assert own == described
        assert all(name.startswith(f"edl_{component}_") for name in own)
        assert all(name.startswith(("process_", "python_")) for name in set(exported) - set(own))


def test_full_names_follow_the_rules(components: dict[str, Metrics]) -> None:
    """The prefix breaks none of them."""
    for metrics in components.values():
        for description in metrics.descriptions:
            check(description.type, description.name, description.labels)


def test_a_page_has_a_table_for_each_component() -> None:
    """Components and metrics in the order of their names."""
    attic, cellar = Metrics("attic"), Metrics("cellar")
    attic.gauge("boxes", "Boxes, full | empty.", ("color", "state"))
    attic.counter("boxes_opened_total", "Opened boxes.")
    cellar.histogram("search_seconds", "Searching.")
    page = metrics_page.page({"cellar": cellar, "attic": attic})
    head = "| Name | Type | Labels | Meaning |\n|---|---|---|---|\n"

    assert page.endswith(
        f"## `attic/`\n\n{head}"
        "| `edl_attic_boxes` | gauge | `color`, `state` | Boxes, full \\| empty. |\n"
        "| `edl_attic_boxes_opened_total` | counter | - | Opened boxes. |\n"
        f"\n## `cellar/`\n\n{head}"
        "| `edl_cellar_search_seconds` | histogram | - | Searching. |\n"
    )


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    """The whole page, as it is in docs; no thread is left afterwards."""
    before = set(threading.enumerate())
    path = tmp_path / "metrics.md"

    assert metrics_page.main(["--output", str(path)]) == 0
    assert path.read_text("utf-8") == metrics_page.PAGE.read_text("utf-8")
    assert set(threading.enumerate()) <= before
