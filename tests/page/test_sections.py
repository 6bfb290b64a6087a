"""What streams send: all of it first, then what has changed, and nothing that the caller may not see."""

import pytest

from kube import request
from kube.request import JOBS, NODES, PODS
from page import sections
from page.access import Access
from page.sections import Section
from policy.names import SYSTEM_NAMESPACE
from tests.page.world import ALL, VISION, PageWorld, rows_of

EVERY = tuple(Section)


def test_a_stream_begins_with_everything() -> None:
    """Each section resets; jobs and nodes are all there, with use of each resource."""
    world = PageWorld()
    world.look()
    parsed = world.events(
        Section.USAGE, Section.JOBS, Section.RECORDS, Section.RECLAIMS, Section.NODES
    )
    data = dict(parsed)

    assert all(values["reset"] for values in data.values())
    assert {row["key"] for row in rows_of(parsed, "jobs")} == set(world.cluster.jobs)
    assert len(rows_of(parsed, "nodes")) == 10
    assert data["usage"]["resources"] == ["cpu", "memory", "nvidia.com/gpu"]
    ((_, amounts),) = data["usage"]["points"][-1:]
    assert all(total >= sum(used) for total, *used in amounts)
    assert min(amounts[0]) > 0
    assert data["records"]["records"]
    assert rows_of(parsed, "reclaims")[0]["namespace"] == SYSTEM_NAMESPACE


def test_use_of_the_cluster_adds_up_over_nodes() -> None:
    """What services and training request is the same by node and altogether."""
    world = PageWorld()
    world.look()
    parsed = world.events(Section.USAGE, Section.NODES)
    ((_, whole),) = dict(parsed)["usage"]["points"][-1:]
    nodes = [row[2] for row in rows_of(parsed, "nodes")]

    for index, amounts in enumerate(whole):
        sums = [sum(node[index][kind] for node in nodes) for kind in range(4)]
        assert amounts == sums


def test_a_pod_that_requests_more_than_there_is_spoils_nobodys_page() -> None:
    """Whoever creates it may choose its node; three containers are more than JSON's whole numbers of 64 bits."""
    world = PageWorld()
    world.look()
    node = rows_of(world.events(Section.NODES), "nodes")[0][0]
    container = {"name": "a", "resources": {"requests": {"memory": "9E"}}}
    spec = {"nodeName": node, "containers": [container] * 3}
    world.cluster.send(request.create(PODS, "ml", {"metadata": {"name": "huge"}, "spec": spec}))
    world.look()
    parsed = world.events(Section.USAGE, Section.NODES)
    ((_, whole),) = dict(parsed)["usage"]["points"][-1:]
    rows = {row[0]: row[2] for row in rows_of(parsed, "nodes")}

    assert whole[1][1] == rows[node][1][1] == 2**63 - 1


def test_then_it_sends_what_has_changed() -> None:
    """One job grew: its row, its node's row, its record; nothing else."""
    world = PageWorld()
    world.look()
    version = world.view.version
    assert world.events(Section.JOBS, Section.NODES, Section.RECORDS, since=version) == []
    before = len(world.cluster.trainers[world.job])
    world.cluster.resize(world.job, 1)
    world.cluster.decide([world.job])
    world.pass_time()
    world.look()
    parsed = world.events(Section.JOBS, Section.NODES, Section.RECORDS, since=version)
    (row,) = rows_of(parsed, "jobs")
    (node,) = rows_of(parsed, "nodes")

    assert (row["key"], row["trainers"]) == (world.job, before + 1)
    assert node[0] == world.cluster.trainers[world.job][-1].node
    assert {record["job"] for record in dict(parsed)["records"]["records"]} <= {world.job}
    assert not any("reset" in values for _, values in parsed)


def test_what_is_gone_is_named() -> None:
    """A job and a node that were deleted."""
    world = PageWorld()
    world.look()
    version, name = world.view.version, world.job.partition("/")[2]
    world.cluster.send(request.delete(JOBS, "ml-vision", name))
    world.cluster.send(request.delete(NODES, None, "node-00003"))
    world.pass_time()
    world.look()
    jobs, nodes = (
        dict(world.events(section, since=version))[section]
        for section in (Section.JOBS, Section.NODES)
    )

    assert jobs["gone"] == [world.job]
    assert nodes["gone"] == ["node-00003"]
    ((_, document),) = world.events(Section.JOB, job=world.job, since=version)
    assert document == {"gone": True, "key": world.job}


@pytest.mark.parametrize("section", [Section.JOBS, Section.RECORDS, Section.RECLAIMS])
def test_other_namespaces_are_not_sent(section: Section) -> None:
    """Not in the beginning, not in changes, not as names of what is gone."""
    world = PageWorld()
    world.look()
    version = world.view.version
    others = {key for key in world.cluster.jobs if not key.startswith("ml-vision/")}
    first = world.events(section, access=VISION)
    for key in sorted(others):
        world.cluster.resize(key, 1)
    world.cluster.decide(sorted(others))
    world.cluster.add_burst(20)
    namespace, _, name = min(others).partition("/")
    world.cluster.send(request.delete(JOBS, namespace, name))
    world.pass_time()
    world.look()
    text = repr(first) + repr(world.events(section, access=VISION, since=version))

    assert "ml-vision" in text
    for other in {key.partition("/")[0] for key in others} | {SYSTEM_NAMESPACE, "shop"}:
        assert other not in text


def test_nothing_is_left_for_whoever_sees_nothing() -> None:
    """Empty tables; a count would tell something, too."""
    world = PageWorld()
    world.look()
    parsed = world.events(
        Section.JOBS, Section.RECORDS, Section.RECLAIMS, access=Access("nobody", frozenset())
    )

    assert rows_of(parsed, "jobs") == rows_of(parsed, "reclaims") == []
    assert dict(parsed)["records"]["records"] == []


def test_a_namespace_narrows_a_stream() -> None:
    """Jobs, records and bursts of it alone."""
    world = PageWorld()
    world.look()
    parsed = world.events(Section.JOBS, Section.RECORDS, Section.RECLAIMS, namespace="ml-vision")

    assert {row["namespace"] for row in rows_of(parsed, "jobs")} == {"ml-vision"}
    records = dict(parsed)["records"]["records"]
    assert {record["namespace"] for record in records} == {"ml-vision"}


def test_a_large_table_comes_in_several_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one resets, the last one says that there are no more."""
    monkeypatch.setattr(sections, "NODES_AT_ONCE", 4)
    world = PageWorld()
    world.look()
    parts = [data for _, data in world.events(Section.NODES)]

    assert [len(data["rows"]) for data in parts] == [4, 4, 2]
    assert [data["more"] for data in parts] == [True, True, False]
    assert ["reset" in data for data in parts] == [True, False, False]


def test_what_fits_where() -> None:
    """As many more trainers as the node's free amounts hold, and as many as without surplus."""
    world = PageWorld()
    world.cluster.resize(world.job, -100)
    world.look()
    job = world.cluster.jobs[world.job]
    resources = dict(world.events(Section.NODES))["nodes"]["resources"]
    rows = rows_of(world.events(Section.NODES, fits=world.job), "nodes")
    needs = [job.requests.get(name, 0) for name in resources]
    nodes = {node.name: node for node in world.watches.cache.nodes.records()}

    assert any(row[3] for row in rows)
    for name, _, amounts, now, without_surplus, _ in rows:
        free = [total - sum(used) for total, *used in amounts]
        room = min(part // need for part, need in zip(free, needs, strict=True) if need)
        assert 0 <= now <= max(0, room) or nodes[name].taints
        assert without_surplus >= now


def test_fits_of_a_job_that_is_not_seen_tells_nothing() -> None:
    """Its requests are the namespace's own business."""
    world = PageWorld()
    world.look()
    access = Access("operator", frozenset({"ml-vision"}), cluster=True)
    rows = rows_of(world.events(Section.NODES, access=access, fits=world.other_job), "nodes")

    assert {(row[3], row[4]) for row in rows} == {(None, None)}


def test_a_job_document_comes_when_something_of_it_changes() -> None:
    """Its members, its accounting and what has happened to it."""
    world = PageWorld()
    world.look()
    version = world.view.version
    assert world.events(Section.JOB, job=world.job, since=version) == []
    world.cluster.resize(world.job, 1)
    world.pass_time()
    world.look()
    ((_, document),) = world.events(Section.JOB, job=world.job, since=version)
    pods = world.cluster.trainers[world.job]

    assert document["memberCount"] == len(document["members"]) == len(pods)
    assert {member["name"] for member in document["members"]} == {pod.name for pod in pods}
    assert document["trainersOverTime"][-1][1] == len(pods)
    assert world.job in {record["job"] for record in document["history"]}
    assert document["books"]["nextId"] == 0


def test_the_objective_is_sent_when_it_changes() -> None:
    """As the reconciler has counted it."""
    world = PageWorld()
    world.look()
    ((_, first),) = world.events(Section.OBJECTIVE)
    assert (first["objective"]["kept"], first["objective"]["share"]) == (950, 0.95)

    assert world.events(Section.OBJECTIVE, since=world.view.version) == []


def test_every_section_has_its_events() -> None:
    """None is forgotten."""
    world = PageWorld()
    world.look()
    parsed = world.events(*EVERY, access=ALL, job=world.job)

    assert {name for name, _ in parsed} == {str(section) for section in Section}


def test_another_resource_begins_nodes_and_use_again() -> None:
    """Columns have other meanings then."""
    world = PageWorld()
    world.look()
    version = world.view.version
    allocatable = {"status": {"allocatable": {"cpu": "8", "memory": "8Gi", "vendor.com/tpu": "4"}}}
    patch = request.merge_patch(NODES, None, "node-00003", allocatable, subresource="status")
    world.cluster.send(patch)
    world.pass_time()
    world.look()
    data = dict(world.events(Section.USAGE, Section.NODES, since=version))

    assert data["usage"]["resources"][-1] == data["nodes"]["resources"][-1] == "vendor.com/tpu"
    assert data["usage"]["reset"]
    assert data["nodes"]["reset"]
    assert len(data["nodes"]["rows"]) == 10


def test_a_record_about_a_trainer_is_on_its_jobs_page() -> None:
    """Though the decision about the job is the same."""
    world = PageWorld()
    world.look()
    version = world.view.version
    world.cluster.add_burst(40)
    world.pass_time()
    world.look()
    with_records = {job for job in world.cluster.jobs if world.view.job_version(job) > version}

    assert with_records


def test_use_is_sent_when_it_changes_and_each_five_seconds() -> None:
    """At once, where a pod comes or goes; a cluster in which nothing happens has a point now and then."""
    world = PageWorld()
    world.look()
    version = world.view.version
    world.now_s += 1.0
    world.look()
    assert world.events(Section.USAGE, since=version) == []
    world.cluster.resize(world.job, 1)
    world.look()
    assert len(dict(world.events(Section.USAGE, since=version))["usage"]["points"]) == 1
    version = world.view.version
    world.now_s += 5.0
    world.look()

    assert len(dict(world.events(Section.USAGE, since=version))["usage"]["points"]) == 1
