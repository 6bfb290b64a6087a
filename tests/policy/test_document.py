import pytest

from policy.document import parser as document
from policy.document.model import FairnessBy, Policy
from policy.errors import DocumentError

_WHOLE = """
apiVersion: edl.training/v1
kind: Policy
tiers: {graceSeconds: 20}
training:
  - {name: kubeflow, namespaces: [team-*], labels: {training.kubeflow.org/job-name: "*"}}
reserve: {maxLoad: {cpu: 0.9}, headroom: {cpu: 20, memory: 5%}}
fairness: {by: fulfilment, queueWeights: {night: 3}}
quotas: [{queue: night, requests: {cpu: 100, memory: 400Gi}}]
sizes: [{allowed: [2, 4, 8]}]
windows:
  - {name: day, days: [mon, fri], start: "09:00", end: "17:30", maxLoad: {cpu: 0.5}}
stability: {gainThreshold: 0.2, minRunSeconds: 60}
nodePools: [{name: gpu, labels: {pool: gpu}}]
protectedNamespaces: [kube-*, vault]
"""


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}", "null"])
def test_an_empty_document_is_the_default_policy(text: str) -> None:
    """Every field has a default."""
    assert document.parse(text) == Policy()


def test_every_section_can_be_written() -> None:
    """Names are camelCase; plain numbers are amounts too."""
    policy = document.parse(_WHOLE)

    assert policy.tiers.grace_seconds == 20
    assert policy.reserve.headroom == {"cpu": "20", "memory": "5%"}
    assert policy.fairness.by is FairnessBy.FULFILMENT
    assert policy.quotas[0].requests == {"cpu": "100", "memory": "400Gi"}
    assert policy.windows[0].end.minute == 30
    assert policy.protected_namespaces == ("kube-*", "vault")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour: blue", "^colour: unknown field$"),
        ("quotes: []", r"^quotes: unknown field \(did you mean quotas\?\)$"),
        (
            "reserve: {maxload: {cpu: 1}}",
            r"^reserve\.maxload: unknown field \(did you mean maxLoad\?\)$",
        ),
        (
            "tiers: {grace_seconds: 5}",
            r"^tiers\.grace_seconds: unknown field \(did you mean graceSeconds\?\)$",
        ),
        (
            "training: [{name: a, lables: {b: c}}]",
            r"^training\.0\.lables: unknown field \(did you mean labels\?\)",
        ),
        ("reserve: {maxLoad: {cpu: 1.2}}", "reserve.maxLoad.cpu: .*less than or equal to 1"),
        ("reserve: {maxLoad: {cpu: 0}}", "reserve.maxLoad.cpu: .*greater than 0"),
        ("reserve: {maxLoad: {cpu: .nan}}", "reserve.maxLoad.cpu: .*finite"),
        ("reserve: {headroom: {cpu: 120%}}", "reserve.headroom.cpu: '120%' is not a share"),
        ("reserve: {headroom: {cpu: -1}}", "reserve.headroom.cpu: '-1' is negative"),
        ("reserve: {headroom: {cpu: lots}}", "reserve.headroom.cpu: .*not a quantity"),
        ("tiers: {graceSeconds: 0}", "tiers.graceSeconds: .*greater than or equal to 1"),
        ("tiers: {graceSeconds: soon}", "tiers.graceSeconds: .*integer"),
        ("fairness: {by: luck}", "fairness.by: .*'dominantShare' or 'fulfilment'"),
        ("fairness: {queueWeights: {a: 0}}", "fairness.queueWeights.a: .*greater than or equal"),
        ("quotas: [{requests: {cpu: 1}}]", "quotas.0: name exactly one of namespace and queue"),
        (
            "quotas: [{namespace: a, queue: b, requests: {cpu: 1}}]",
            "quotas.0: name exactly one of namespace and queue",
        ),
        ("quotas: [{queue: a}]", "quotas.0: sets no ceiling; give requests"),
        ("quotas: [{queue: a, requests: {cpu: 5%}}]", "quotas.0.requests.cpu: '5%': a quota is an"),
        ("sizes: [{}]", "sizes.0: give exactly one of allowed"),
        ("sizes: [{step: 2, powersOfTwo: true}]", "sizes.0: give exactly one of allowed"),
        ("sizes: [{allowed: [0]}]", "sizes.0.allowed.0: .*greater than or equal to 1"),
        ("training: [{name: all}]", "training.0: would make every pod .*; name labels"),
        (
            'windows: [{name: d, start: "9", end: "10:00", maxLoad: {}}]',
            "windows.0.start: '9' is not a time of day; .*in quotes: \"22:00\"",
        ),
        (
            'windows: [{name: d, start: 22:00, end: "10:00", maxLoad: {}}]',
            'windows.0.start: .*in quotes.*"22:00"',
        ),
        (
            'windows: [{name: d, start: "22:00", end: "10:00+02:00", maxLoad: {}}]',
            "windows.0.end: .* is not a time of day",
        ),
        (
            'windows: [{name: d, days: [], start: "22:00", end: "23:00", maxLoad: {}}]',
            "windows.0.days: Tuple should have at least 1 item",
        ),
        (
            'windows: [{name: d, start: "22:00", end: "24:00", maxLoad: {}}]',
            "windows.0.end: '24:00' is not a time of day; .*\"00:00\" for midnight",
        ),
        (
            'windows: [{name: d, start: "22:00", end: "10:00", maxLoad: {}, timeZone: Mars}]',
            "windows.0.timeZone: 'Mars' is not a time zone; write for example Asia/Shanghai",
        ),
        (
            'windows: [{name: d, start: "22:00", end: "10:00", maxLoad: {}, timeZone: ../etc}]',
            "windows.0.timeZone: '../etc' is not a time zone",
        ),
        *(
            (
                f'windows: [{{name: d, start: "22:00", end: "10:00", maxLoad: {{}}, timeZone: {zone}}}]',
                f"windows.0.timeZone: '{zone}' is not a time zone",
            )
            for zone in ("Europe", "US")
        ),
        ("stability: {maxMoves: 0}", "stability.maxMoves: .*greater than 0"),
        ("stability: {minRunSeconds: -1}", "stability.minRunSeconds: .*greater than or equal"),
        ("nodePools: [{labels: {a: b}}]", "nodePools.0.name: Field required"),
        ("apiVersion: edl.training/v2", "apiVersion: .*'edl.training/v1'"),
        ("1: 2", "1: .*string"),
        ("[1, 2]", "must be a mapping such as `reserve"),
        ("just words", "must be a mapping"),
        ("{a: [", "the policy is not valid YAML"),
        ("a: 2024-13-45", "the policy is not valid YAML"),
        ("[" * 800, "nested more than 20 levels deep"),
        ("a: \ud800", "the policy is not valid YAML"),
        ("a: &x 1\nb: *x", r"^anchors and aliases \(`&x`\) are not read: repeat the value$"),
        ("a: " + "{a: " * 30, "nested more than 20 levels deep"),
        ("? " * 30_000, "nested more than 20 levels deep"),
        (
            "a: 1" + ":1" * 30_000,
            r"`1:1:.*\.\.\.` is a number of 60001 characters: write a shorter",
        ),
        ("a: 0x" + "f" * 5_000, "is a number of 5002 characters"),
        ("a: " + "x" * 200, "a: unknown field"),
        ("a: !!float 1" + "0" * 5_000, "is a number of 5001 characters"),
        ("# " + "x" * document.MAX_BYTES, "longer than 65536 bytes"),
    ],
)
def test_faults_are_named(text: str, words: str) -> None:
    """An error is one line with the field as it is written and the problem."""
    with pytest.raises(DocumentError, match=words) as refusal:
        document.parse(text)
    assert "\n" not in str(refusal.value)


def test_all_faults_are_named_at_once() -> None:
    """One round of mending is enough."""
    with pytest.raises(DocumentError) as refusal:
        document.parse("colour: blue\ntiers: {graceSeconds: 0}\n")
    assert "colour: unknown field" in str(refusal.value)
    assert "tiers.graceSeconds" in str(refusal.value)


def test_the_fingerprint_names_the_text() -> None:
    """Twelve hex digits, another for another text, and any text has one."""
    assert document.fingerprint("a") != document.fingerprint("b")
    assert len(document.fingerprint("\ud800")) == 12


def test_a_short_bomb_of_merge_keys_is_refused_before_it_is_built() -> None:
    """Seven levels of ten would be ten million keys of a few hundred bytes."""
    levels = "".join(
        f"a{i}: &a{i} {{{', '.join(f'k{j}: *a{i - 1}' for j in range(10))}}}\n" for i in range(1, 8)
    )
    with pytest.raises(DocumentError, match="anchors and aliases"):
        document.parse(f"a0: &a0 {{x: 1}}\n{levels}")


def test_of_many_faults_the_first_are_named_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message goes into events and logs; advice is looked for no more often than it is given."""
    asked: list[str] = []

    def advise(name: str, _: object) -> str:
        asked.append(name)
        return ""

    monkeypatch.setattr(document, "advice", advise)
    with pytest.raises(DocumentError, match=r"; f19: unknown field; and 80 more$"):
        document.parse("\n".join(f"f{i}: 1" for i in range(100)))
    assert len(asked) == 20


@pytest.mark.parametrize(
    "text",
    [
        "a: !!int ''",
        "a: !!timestamp 2001-02",
        "a: !!bool maybe",
        "a: " + ":".join(["59"] * 400) + ".5",
        "a: !!float ''",
        "? [a]\n: b",
        "a: !!binary '='",
        "1: {}",
        "a: !!int " + "9" * 5000,
    ],
)
def test_whatever_the_yaml_reader_raises_is_an_error_of_the_document(text: str) -> None:
    """Another error would be a 500 of the webhook, and the document would be stored."""
    with pytest.raises(DocumentError):
        document.parse(text)
