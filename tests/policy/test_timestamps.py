from policy.timestamps import timestamp


def test_a_time_is_cut_to_whole_seconds() -> None:
    """Kubernetes' own times have no fractions, and none may lie in the future because of one."""
    assert timestamp(1_700_000_000.9) == "2023-11-14T22:13:20Z"
