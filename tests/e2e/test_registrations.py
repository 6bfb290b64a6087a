import pytest

from e2e.registrations import by_url
from tests.webhook.cluster import registrations


@pytest.mark.parametrize("url", ["https://127.0.0.1:8443", "https://BOX"])
def test_by_url_replaces_every_service(url: str) -> None:
    """Each entry calls its own path at the URL; the original is left as it was."""
    for document in registrations():
        changed = by_url(document, f"{url}/")
        paths = {entry["clientConfig"]["service"]["path"] for entry in document["webhooks"]}
        urls = {entry["clientConfig"]["url"] for entry in changed["webhooks"]}

        assert urls == {f"{url}{path}" for path in paths}
        assert not any("service" in entry["clientConfig"] for entry in changed["webhooks"])
