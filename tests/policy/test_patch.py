import jsonpatch

from policy.admission.patch import Drop, Push, Put, operations


def test_missing_parents_come_first_and_once() -> None:
    """A patch whose parent is missing would fail the request even under failurePolicy Ignore."""
    changes = [Put(("metadata", "labels", "a"), "1"), Put(("metadata", "labels", "b"), "2")]

    paths = [operation["path"] for operation in operations({}, changes)]

    assert paths == ["/metadata", "/metadata/labels", "/metadata/labels/a", "/metadata/labels/b"]


def test_names_are_escaped() -> None:
    """A slash or tilde in a name is escaped."""
    document = {"metadata": {"labels": {"x/y~z": "old"}}}
    patch = list(operations(document, [Put(("metadata", "labels", "x/y~z"), "new")]))

    assert patch[0]["path"] == "/metadata/labels/x~1y~0z"
    assert jsonpatch.JsonPatch(patch).apply(document)["metadata"]["labels"] == {"x/y~z": "new"}


def test_lists_grow_at_either_end() -> None:
    """What is missing is made, once."""
    document = {"old": ["b"]}
    changes = [
        Push(("old",), "a", first=True),
        Push(("old",), "c"),
        Push(("new",), 1),
        Push(("new",), 2),
    ]

    assert jsonpatch.JsonPatch(list(operations(document, changes))).apply(document) == {
        "old": ["a", "b", "c"],
        "new": [1, 2],
    }


def test_same_value_is_no_operation() -> None:
    """Only differences are written; false is not 0."""
    document = {"a": 0, "b": "x"}

    assert operations(document, [Put(("a",), 0), Put(("b",), "x")]) == ()
    assert operations(document, [Put(("a",), False)]) == (
        {"op": "add", "path": "/a", "value": False},
    )


def test_null_parents_are_replaced() -> None:
    """A parent that is null, or of another kind, becomes an object."""
    document = {"a": None, "b": [], "c": [{"d": None}]}
    changes = [Put(("a", "x"), 1), Put(("b", "x"), 1), Put(("c", 0, "d", "x"), 1)]

    after = jsonpatch.JsonPatch(list(operations(document, changes))).apply(document)

    assert after == {"a": {"x": 1}, "b": {"x": 1}, "c": [{"d": {"x": 1}}]}


def test_dropping() -> None:
    """What is dropped is gone."""
    document = {"a": 1, "b": 2}
    patch = list(operations(document, [Drop(("a",))]))

    assert jsonpatch.JsonPatch(patch).apply(document) == {"b": 2}
