"""What a caller may see: the API server decides, by the caller's own token."""

import pytest

from bench.page_cluster import CALLERS, Rights
from kube import access_review, errors
from kube.access_review import AccessRight
from kube.request import DECISIONLOGS, JOBS, PODS
from page.access import Authorizer
from tests.page.world import PageWorld


@pytest.fixture(scope="module")
def world() -> PageWorld:
    """A page that has read its cluster."""
    world = PageWorld()
    world.look()
    return world


def _authorizer(world: PageWorld, keep_s: float = 30.0) -> Authorizer:
    return Authorizer(
        world.cluster.with_token, lambda: world.view.namespaces, keep_s, lambda: world.now_s
    )


def test_rights_are_those_of_the_token(world: PageWorld) -> None:
    """All, one namespace, or nothing; records with all names are for whoever may read edl-system's."""
    admin, vision, nobody = (_authorizer(world).access(token) for token in CALLERS)

    assert admin.all_namespaces
    assert admin.cluster
    assert admin.cluster_log
    assert vision.namespaces == frozenset({"ml-vision"})
    assert not vision.cluster
    assert not vision.cluster_log
    assert nobody.namespaces == frozenset()
    assert len({access.fingerprint for access in (admin, vision, nobody)}) == 3


@pytest.mark.parametrize(
    "kinds", [(JOBS, PODS), (DECISIONLOGS, PODS), (DECISIONLOGS, JOBS), (DECISIONLOGS,)]
)
def test_a_namespace_is_seen_with_all_three_rights_alone(kinds: tuple[object, ...]) -> None:
    """Whoever lacks the right to list records, jobs or pods there sees nothing of it."""
    world = PageWorld()
    world.callers["some"] = Rights(("ml-vision",), kinds=kinds)  # type: ignore[arg-type]
    world.look()

    assert _authorizer(world).access("some").namespaces == frozenset()


def test_nodes_without_all_pods_do_not_show_the_cluster() -> None:
    """What services use is a sum over the pods of all namespaces."""
    world = PageWorld()
    world.callers["operator"] = Rights(("ml-vision",), nodes=True)
    world.look()

    assert not _authorizer(world).access("operator").cluster


def test_an_answer_is_kept_for_some_seconds() -> None:
    """Then the API server is asked again: a right that is taken away is gone, and so is a token."""
    world = PageWorld()
    world.look()
    authorizer = _authorizer(world)
    assert authorizer.access("vision").sees("ml-vision")
    del world.callers["vision"]

    world.now_s += 29.0
    assert authorizer.access("vision").sees("ml-vision")
    world.now_s += 2.0
    with pytest.raises(errors.Unauthorized):
        authorizer.access("vision")


def test_tokens_are_not_kept(world: PageWorld) -> None:
    """The authorizer remembers a digest."""
    authorizer = _authorizer(world)
    authorizer.access("admin")

    assert "admin" not in repr(vars(authorizer)["_known"].keys())
    assert all(len(key) == 32 for key in vars(authorizer)["_known"])


def test_reviews_name_what_is_asked(world: PageWorld) -> None:
    """User and rights as the API server has them."""
    api = world.cluster.with_token("vision")

    assert access_review.user(api) == "vision"
    assert access_review.may(api, AccessRight("list", JOBS, "ml-vision"))
    assert not access_review.may(api, AccessRight("list", JOBS))
