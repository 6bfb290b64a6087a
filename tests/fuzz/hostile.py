"""API objects that a tenant could store, with values that nobody expects.

Types are those that the API server accepts; some Jobs have others all the same. EDL refuses a Job for
its first bad value, so most values of most objects are ordinary ones: `wild` is the share of others.
"""

from random import Random
from typing import Any

from policy import names
from tests.reconciler import objects

NAMESPACE = "evil"
POOL = "evil"
"""Value of the label `pool` of the only node that these objects may use."""
TEXTS = (
    *(
        "",
        " ",
        "0",
        "1",
        "2",
        "3",
        "-1",
        "+1",
        "1.5",
        "1e3",
        "1e300",
        "-1e300",
        "1e999",
        "nan",
        "inf",
    ),
    *(
        "true",
        "false",
        "True",
        "null",
        "{}",
        "[]",
        '""',
        "{",
        "\x00",
        "\u202e",
        "\U0001f600",
        "é" * 63,
    ),
    *("10000", "10001", "2147483647", "2147483648", "9223372036854775807", "1" + "0" * 400),
    *("0x10", "1_0", "\u0966", "1,2", "0-3,7", "0-99999", "9-1", "a" * 10_000, "../../x", "a\nb"),
    '{"next":1,"failuresInRow":1,"lastFailure":1e300}',
    '{"next":1,"failuresInRow":1,"lastFailure":1e12}',
    '{"next":1,"failed":100000000000000000000}',
    '{"next":100000,"open":"0-99999"}',
    '{"next":20000,"open":"0-19999","released":2147483647}',
    '{"next":-1,"open":"0"}',
    '{"next":3,"open":"0-2","fatal":["x"]}',
    '{"next":"3","open":7,"failed":true,"excused":1e3}',
    '{"next":1,"lastFailure":"yesterday"}',
    "[" * 3000,
)
ORDINARY_TEXTS = {
    names.ANNOTATION_MIN: ("1", "1", "2", "3", "100"),
    names.ANNOTATION_MAX: ("2", "3", "100", "10000"),
    names.ANNOTATION_QUEUE: ("a", ""),
    names.ANNOTATION_WEIGHT: ("1", "7", "1000"),
    names.ANNOTATION_MASTER: ("true", "true", "true", "false"),
    names.ANNOTATION_MASTER_STEPS: ("1", "999999999"),
    names.ANNOTATION_MASTER_HEARTBEAT: ("0.05", "60"),
    names.ANNOTATION_MASTER_STUCK: ("1", "86400"),
    names.ANNOTATION_DATA: ("/data", "s3://x"),
    names.ANNOTATION_EPOCHS: ("1", "1000000"),
    names.ANNOTATION_TOKEN_GENERATION: ("1", "2"),
    names.ANNOTATION_MASTER_CPU: ("1m", "100m", "4", "5000"),
    names.ANNOTATION_MASTER_MEMORY: ("64Mi", "1Gi", "8Ei"),
    names.ANNOTATION_MASTER_TEMPLATE: (
        '{"spec":{"containers":[{"name":"m","image":"i","ports":[{"containerPort":1}]}]}}',
        (
            '{"spec":{"containers":[{"name":"m","image":"i","ports":[{"containerPort":8790}],'
            '"resources":{"requests":{"cpu":"9"}}}]}}'
        ),
    ),
    names.ANNOTATION_SERVERS: ("1", "1", "2", "2", "5", "64"),
    names.ANNOTATION_SERVER_CPU: ("1m", "500m", "9999"),
    names.ANNOTATION_SERVER_MEMORY: ("128Mi", "1Gi"),
    names.ANNOTATION_CLAIM: ("c",),
    names.ANNOTATION_SERVER_TEMPLATE: (
        '{"spec":{"nodeSelector":{"pool":"evil"}}}',
        '{"spec":{"containers":[{"name":"s","image":"i","ports":[{"containerPort":1}]}]}}',
    ),
    names.ANNOTATION_SIZES: ("1", "1,2,4", "3,100"),
    names.ANNOTATION_PROCESSES: ("1", "128"),
    names.ANNOTATION_ENVIRONMENT: ("paddle", "torch"),
    names.ANNOTATION_PLANNED_NODE: ("evil", "n0", "nowhere"),
    names.ANNOTATION_SCHEDULER: ("default-scheduler", "volcano"),
    names.ANNOTATION_NODE_REQUEST: ("start", "replacement"),
    names.ANNOTATION_UNCOMMITTED: ("0", "17.5", "999999"),
    names.ANNOTATION_BOOKS: (
        '{"next":3,"open":"0-2"}',
        '{"next":9,"open":"1,3,7","released":2,"failed":1}',
        '{"next":1,"open":"0","failed":6}',
        '{"next":10000,"open":"0-9999"}',
        '{"next":2147483000,"open":""}',
        '{"next":4,"open":"0-3","succeeded":2,"disrupted":5}',
    ),
}
"""Texts that EDL takes for annotations; those that are missing here have none."""
ORDINARY_QUANTITIES = ("0", "1", "100m", "1.5", "5", "13", "41", "1Gi")
QUANTITIES = (
    *("0", "1", "100m", "1n", "0.1", "1.5", "1Gi", "8Ei", "1e3", "1E6", "9223372036854775807"),
    *(
        "-1",
        "",
        "abc",
        "1e1000",
        "1e-1000",
        "9" * 300,
        "0.000000000001",
        "\u0661",
        "1 Gi",
        "+5",
        ".5",
    ),
)
TIMES = (
    *(
        "2026-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "1970-01-01T00:00:00Z",
    ),
    *(
        "2027-01-15T08:00:00Z",
        "2027-01-15T08:00:00.999999+14:00",
        "yesterday",
        "",
        "2024-02-30T00:00:00Z",
    ),
)
NUMBERS = (0, 1, 2, 3, 5, 100, 2**31 - 1, -1, -(2**31))
RESOURCES = (
    "cpu",
    "memory",
    "pods",
    "ephemeral-storage",
    "nvidia.com/gpu",
    names.TRAINER_RESOURCE,
    "x",
)
_JOB_ANNOTATIONS = tuple(
    getattr(names, name) for name in vars(names) if name.startswith("ANNOTATION_")
)
_POD_LABELS = tuple(getattr(names, name) for name in vars(names) if name.startswith("LABEL_"))
_LABEL_VALUES = (
    *("trainer", "pserver", "master", "guaranteed", "surplus", "support", "true", "0", "1", "-1"),
    *("99999999999999999999", "good-a", "bad", "x", ""),
)
_MANY = 0.05
_WILD = (0.0, 0.0, 0.03, 0.2, 1.0)
_WRONG: tuple[Any, ...] = (None, 0, 1.5, "x", [], {}, True, [None], {"a": None})
"""Values of types that the API server refuses nearly everywhere."""


def annotations(random: Random, wild: float = 1.0) -> dict[str, str]:
    """Annotations of EDL and others."""
    chosen = random.sample(_JOB_ANNOTATIONS, random.choice((0, 1, 2, 3, 6)))
    return {name: _text(random, name, wild) for name in chosen}


def _text(random: Random, name: str, wild: float) -> str:
    if random.random() < wild or name not in ORDINARY_TEXTS:
        return random.choice(TEXTS)
    return random.choice(ORDINARY_TEXTS[name])


def quantities(random: Random, wild: float = 1.0) -> dict[str, str]:
    """Amounts of some resources."""
    chosen = random.sample(RESOURCES, random.randint(0, 3))
    return {
        name: random.choice(QUANTITIES if random.random() < wild else ORDINARY_QUANTITIES)
        for name in chosen
    }


def _few_or(many: int, random: Random) -> int:
    """A number of entries; rarely a large one, for each costs time to make and to read."""
    return many if random.random() < _MANY else random.randint(0, 2)


def _container(random: Random, number: int, wild: float) -> dict[str, Any]:
    container: dict[str, Any] = {"name": f"c{number}", "image": "none"}
    if random.random() < 0.8:
        requests = {names.TRAINER_RESOURCE: "1"} if random.random() < wild else {}
        requests |= quantities(random, wild)
        container["resources"] = {"requests": requests, "limits": quantities(random, wild)}
    if random.random() < 0.2:
        container["restartPolicy"] = "Always"
    return container


def _expression(random: Random) -> dict[str, Any]:
    operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    values = [random.choice(TEXTS) for _ in range(_few_or(300, random))]
    return {"key": random.choice(("pool", "x", "")), "operator": operator, "values": values}


def _affinity(random: Random) -> dict[str, Any]:
    terms = [
        {
            random.choice(("matchExpressions", "matchFields")): [
                _expression(random) for _ in range(random.randint(0, 3))
            ]
        }
        for _ in range(_few_or(100, random))
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required, "podAntiAffinity": {}}


def pod_spec(random: Random, wild: float = 1.0) -> dict[str, Any]:
    """A pod's spec that can use the hostile node alone."""
    spec: dict[str, Any] = {
        "restartPolicy": random.choice(("Never", "OnFailure")),
        "nodeSelector": {"pool": POOL},
        "containers": [
            _container(random, number, wild) for number in range(_few_or(40, random) or 1)
        ],
    }
    if random.random() < 0.3:
        spec["initContainers"] = [
            _container(random, 90 + n, wild) for n in range(random.randint(0, 3))
        ]
    if random.random() < 0.3 * wild:
        spec["affinity"] = _affinity(random)
    if random.random() < 0.1:
        spec |= _unplannable(random)
    if random.random() < 0.3:
        spec["tolerations"] = [
            {
                "key": f"t{number}",
                "operator": random.choice(("Exists", "Equal")),
                "tolerationSeconds": random.choice(NUMBERS),
            }
            for number in range(_few_or(200, random))
        ]
    if random.random() < 0.2:
        spec["overhead"] = quantities(random, wild)
    if random.random() < 0.2:
        spec["priority"] = random.choice(NUMBERS)
        spec["preemptionPolicy"] = random.choice(("Never", "PreemptLowerPriority"))
    if random.random() < 0.2:
        spec["schedulingGates"] = [{"name": "x"}]
    return spec


def _unplannable(random: Random) -> dict[str, Any]:
    """Fields with which kube-scheduler looks at more than resources."""
    claim = {"name": "d", "resourceClaimTemplateName": "gpu"}
    return random.choice(
        (
            {"resourceClaims": [claim]},
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]},
            {"schedulerName": "volcano"},
            {"hostNetwork": True},
            {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
            {"terminationGracePeriodSeconds": random.choice(NUMBERS)},
        )
    )


def _conditions(random: Random) -> list[dict[str, Any]]:
    types = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet", "Suspended", "Ready")
    return [
        {
            "type": random.choice((*types, "edl.training/Waiting", "PodScheduled", "x")),
            "status": random.choice(("True", "False", "Unknown")),
            "reason": random.choice(("", "Unschedulable", "x")),
            "message": random.choice(TEXTS),
            "lastTransitionTime": random.choice(TIMES),
        }
        for _ in range(random.choice((0, 0, 1, 3)))
    ]


def job(random: Random, name: str) -> dict[str, Any]:
    """A Job, mostly an elastic one."""
    wild = random.choice(_WILD)
    low = random.choice((1, 1, 2, 3, 100, 9_000))
    body = objects.job(
        name,
        0 if random.random() < wild / 2 else low,
        low + random.choice((0, 1, 2, 100, -1 if random.random() < wild else 0)),
        managed=random.random() < 0.8,
        annotations=annotations(random, wild),
    )
    for annotation, share in ((names.ANNOTATION_MASTER, 0.7), (names.ANNOTATION_SERVERS, 0.3)):
        if random.random() < share:
            text = _text(random, annotation, 0.0)
            body["metadata"]["annotations"].setdefault(annotation, text)
    body["metadata"]["namespace"] = NAMESPACE
    if random.random() < 0.3:
        body["metadata"]["creationTimestamp"] = random.choice(TIMES)
    body["spec"]["template"] = {"spec": pod_spec(random, wild)}
    for field in ("parallelism", "backoffLimit", "activeDeadlineSeconds"):
        if random.random() < 0.3 * wild:
            body["spec"][field] = random.choice(NUMBERS)
    if random.random() < 0.1:
        body["spec"]["suspend"] = True
    if random.random() < 0.2 * wild:
        codes = {"operator": random.choice(("In", "NotIn")), "values": [random.choice(NUMBERS)]}
        actions = ("Ignore", "FailJob", "Count", "FailIndex")
        rule = {"action": random.choice(actions), "onExitCodes": codes}
        body["spec"]["podFailurePolicy"] = {"rules": [rule] * random.choice((1, 20))}
    if random.random() < 0.3 * wild:
        counts = {field: random.choice(NUMBERS) for field in ("active", "failed", "succeeded")}
        times = {field: random.choice(TIMES) for field in ("startTime", "completionTime")}
        body["status"] = {**counts, **times, "conditions": _conditions(random)}
    return _damaged(random, body) if random.random() < wild else body


def pod(random: Random, name: str, owner: dict[str, Any] | None) -> dict[str, Any]:
    """A pod with labels of EDL; perhaps it says that a Job owns it, and has a trainer's name."""
    wild = random.choice(_WILD)
    body = objects.pod(name, namespace=NAMESPACE)
    labels = random.sample(_POD_LABELS, random.randint(0, len(_POD_LABELS)))
    body["metadata"]["labels"] = {label: random.choice(_LABEL_VALUES) for label in labels}
    body["metadata"]["annotations"] = annotations(random)
    if owner is not None and random.random() < 0.7:
        reference = {
            "kind": "Job",
            "name": "x",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        body["metadata"]["ownerReferences"] = [reference] * random.choice((1, 3))
        body["metadata"]["labels"][names.LABEL_JOB] = owner["metadata"]["name"]
    body["spec"] = pod_spec(random, wild)
    if random.random() < 0.5:
        classes = ("edl-surplus", "edl-guaranteed", "edl-support", "x")
        body["spec"]["priorityClassName"] = random.choice(classes)
    if random.random() < 0.4:
        body["spec"]["nodeName"] = random.choice(("evil", "nowhere"))
    if random.random() < 0.5:
        state = {
            "exitCode": random.choice(NUMBERS),
            "startedAt": random.choice(TIMES),
            "finishedAt": random.choice(TIMES),
        }
        statuses = [{"name": "c0", "state": {"terminated": state}, "restartCount": 2**31 - 1}]
        body["status"] = {
            "phase": random.choice(("Pending", "Running", "Succeeded", "Failed", "Unknown")),
            "startTime": random.choice(TIMES),
            "conditions": _conditions(random),
            "nominatedNodeName": random.choice(("", "evil", "nowhere")),
            "containerStatuses": statuses * random.choice((0, 1, 50)),
            "podIP": random.choice(TEXTS),
        }
    return body


def _damaged(random: Random, body: dict[str, Any]) -> dict[str, Any]:
    """The object; one in ten has a value of another type somewhere."""
    if random.random() < 0.1:
        part: dict[str, Any] = body[random.choice(("metadata", "spec"))]
        for _ in range(random.randint(0, 2)):
            inner = [value for value in part.values() if isinstance(value, dict) and value]
            part = random.choice(inner) if inner else part
        keys = [key for key in part if key not in {"name", "namespace", "uid", "nodeSelector"}]
        if keys:
            part[random.choice(keys)] = random.choice(_WRONG)
    return body
