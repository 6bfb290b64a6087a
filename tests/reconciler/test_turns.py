"""Whose turn it is where one tick does not do all."""

from reconciler.turns import in_turns
from tests.support.builders import job


def test_namespaces_take_turns() -> None:
    """In the order given among the jobs of one namespace, and among namespaces."""
    several = [
        job(name, namespace=namespace) for namespace, name in ("a1", "a2", "a3", "b1", "c1", "b2")
    ]

    assert [j.key for j in in_turns(several)] == ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]
