from policy.nearest import advice, nearest

KNOWN = ("--batch-size", "--micro-batches", "--seed")


def test_the_nearest_name_resembles_most_whatever_the_case() -> None:
    """And nothing is near to a name of another kind."""
    assert nearest("--batchsize", KNOWN) == "--batch-size"
    assert nearest("--SEED", KNOWN, "--") == "--seed"
    assert nearest("--colour", KNOWN, "--") == ""


def test_a_part_of_a_name_stands_for_it() -> None:
    """As people write who left out a word; a few characters are part of too many names."""
    assert nearest("EDL_WEBHOOK_IMAGE", ["EDL_WEBHOOK_MASTER_IMAGE"], "EDL_WEBHOOK_") != ""
    assert nearest("--mic", KNOWN, "--") == ""


def test_a_common_beginning_does_not_make_names_resemble() -> None:
    """EDL_FOO is not near EDL_JOB, though more than half of their letters agree."""
    assert nearest("EDL_FOO", ["EDL_JOB"]) == "EDL_JOB"
    assert nearest("EDL_FOO", ["EDL_JOB"], "EDL_") == ""


def test_advice_ends_a_message() -> None:
    """It is empty where no name is near."""
    assert f"--sed{advice('--sed', KNOWN, '--')}" == "--sed (did you mean --seed?)"
    assert advice("--colour", KNOWN, "--") == ""


def test_a_name_of_megabytes_resembles_none() -> None:
    """It is not compared: a tenant may write one, and the webhook answers all others meanwhile."""
    longest = "--seed" + "d" * 94
    assert nearest(longest, [f"{longest}d"]) == f"{longest}d"
    assert nearest(f"{longest}d", [longest]) == ""
    assert nearest("--batch-sizes" + "s" * 88, KNOWN) == ""
    assert nearest("--seed" + "d" * 3_000_000, ["--seed" + "d" * 3_000_001]) == ""
