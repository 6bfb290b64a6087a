import os
import shutil
from pathlib import Path

import pytest

from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import needs


def test_who_is_not_root_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, before anything is built."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(ClusterError, match=r"^no real nodes here: they need (root|Linux)$"):
        needs.find()


def test_what_is_missing_is_a_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All packages at once, each once; or what keeps the machine from it altogether."""
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)

    with pytest.raises(ClusterError) as error:
        needs.find()
    text = str(error.value)
    assert text.startswith("no real nodes here: ")
    if "apt-get" in text:
        packages = text.rpartition("apt-get install ")[2].rstrip("`").split()
        assert {"runc", "iptables", "util-linux", "iproute2"} <= set(packages)
        assert len(packages) == len(set(packages))


@pytest.mark.parametrize("place", ["/var/lib/edl", "/var/log/edl", "/run/edl"])
def test_places_that_nodes_cover_are_refused(place: str) -> None:
    """A node would not see its own files there."""
    with pytest.raises(ClusterError, match=f"cannot see {place}"):
        needs.check_place(Path(place))
    needs.check_place(Path("/home/ann/.cache/edl"))
