import jsonpatch

from policy.admission.patch import Patch


def test_missing_parents_come_first_and_once() -> None:
    """A patch whose parent is missing would fail the request even under failurePolicy Ignore."""
    patch = Patch({})
    patch.put(("metadata", "labels", "a"), "1")
    patch.put(("metadata", "labels", "b"), "2")

    paths = [operation["path"] for operation in patch.operations()]

    assert paths == ["/metadata", "/metadata/labels", "/metadata/labels/a", "/metadata/labels/b"]


def test_names_are_escaped() -> None:
    """A slash or tilde in a name is escaped."""
    document = {"metadata": {"labels": {"x/y~z": "old"}}}
    patch = Patch(document)
    patch.put(("metadata", "labels", "x/y~z"), "new")

    operations = list(patch.operations())

    assert operations[0]["path"] == "/metadata/labels/x~1y~0z"
    assert jsonpatch.JsonPatch(operations).apply(document)["metadata"]["labels"] == {"x/y~z": "new"}


def test_lists_grow_at_either_end() -> None:
    """What is missing is made, once."""
    document = {"old": ["b"]}
    patch = Patch(document)
    patch.push(("old",), "a", first=True)
    patch.push(("old",), "c")
    patch.push(("new",), 1)
    patch.push(("new",), 2)

    assert jsonpatch.JsonPatch(list(patch.operations())).apply(document) == {
        "old": ["a", "b", "c"],
        "new": [1, 2],
    }


def test_same_value_is_no_operation() -> None:
    """Only differences are written; false is not 0."""
    patch = Patch({"a": 0, "b": "x"})
    patch.put(("a",), 0)
    patch.put(("b",), "x")
    same = patch.operations()
    patch.put(("a",), False)

    assert same == ()
    assert patch.operations() == ({"op": "add", "path": "/a", "value": False},)


def test_null_parents_are_replaced() -> None:
    """A parent that is null, or of another kind, becomes an object."""
    document = {"a": None, "b": [], "c": [{"d": None}]}
    patch = Patch(document)
    for path in (("a", "x"), ("b", "x"), ("c", 0, "d", "x")):
        patch.put(path, 1)

    after = jsonpatch.JsonPatch(list(patch.operations())).apply(document)

    assert after == {"a": {"x": 1}, "b": {"x": 1}, "c": [{"d": {"x": 1}}]}


def test_dropping() -> None:
    """What is dropped is gone."""
    patch = Patch({"a": 1, "b": 2})
    patch.drop(("a",))

    assert jsonpatch.JsonPatch(list(patch.operations())).apply({"a": 1, "b": 2}) == {"b": 2}
