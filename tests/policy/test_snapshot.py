"""What the records say about themselves."""

import pytest

from policy.cluster.snapshot import Job, JobCondition, JobStatus


@pytest.mark.parametrize(
    ("kind", "status", "over", "finished"),
    [
        ("Complete", "True", True, True),
        ("Failed", "True", True, True),
        ("SuccessCriteriaMet", "True", True, False),
        ("FailureTarget", "True", True, False),
        ("Complete", "False", False, False),
        ("Suspended", "True", False, False),
    ],
)
def test_a_job_ends_in_two_steps(kind: str, status: str, over: bool, finished: bool) -> None:
    """First its end is decided and its trainers stop; only then its status is final."""
    conditions = (JobCondition(kind, status),)
    job = Job("ml", "net", "uid-net", 1, 2, {}, status=JobStatus(conditions=conditions))

    assert (job.over, job.stopped, job.finished) == (over, over, finished)
