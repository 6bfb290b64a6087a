"""Mutation testing: the sample, the verdicts, and that the user's tree is only read."""

import json
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.mutants import __main__, equivalents, files, order, report, sample, stage, verdicts
from bench.mutants.equivalents import Equivalent
from bench.mutants.patch import patch
from bench.mutants.rooms import Room, rooms
from bench.mutants.run import Outcome, _at_home
from bench.mutants.verdicts import Verdict, VerdictCounts

_ROOT = Path(__file__).parents[2]
_CODE = "def half(number):\n    log.info('half')\n    return number / 2\n"


def test_large_rooms_share_what_small_ones_leave() -> None:
    """Every room is tried 25 times at least; the rest goes by how many mutants there are."""
    shares = sample.shares({"policy": 6000, "sdk": 3000, "kube": 100}, 500, 25)
    assert shares == {"policy": 317, "sdk": 158, "kube": 25}


def test_shares_are_whole_and_add_up() -> None:
    """Rounding keeps the sum equal to the requested count."""
    assert sum(sample.shares({"a": 1000, "b": 1000, "c": 1000}, 500, 25).values()) == 500


def test_a_room_is_not_tried_more_often_than_it_has_mutants() -> None:
    """A room of ten mutants has all of them tried, and a large count tries all there are."""
    assert sample.shares({"a": 10, "b": 1000}, 500, 25) == {"a": 10, "b": 490}
    assert sample.shares({"a": 10, "b": 40}, 500, 25) == {"a": 10, "b": 40}


def test_a_small_count_still_tries_each_room() -> None:
    """With fewer than 25 for each room the sum is above the count."""
    assert sample.shares({"a": 1000, "b": 2000}, 10, 25) == {"a": 25, "b": 25}


def test_the_seed_says_which_are_tried() -> None:
    """The same seed picks the same, in the order of the code; another seed picks others."""
    picked = sample.pick(range(1000), 20, 7, "policy")
    assert picked == sample.pick(range(1000), 20, 7, "policy") == sorted(picked)
    assert picked != sample.pick(range(1000), 20, 8, "policy")
    assert picked != sample.pick(range(1000), 20, 7, "kube")


def test_a_larger_count_tries_the_same_and_more() -> None:
    """Survivors of a short run come again in a long one with its seed."""
    assert set(sample.pick(range(1000), 20, 7, "a")) < set(sample.pick(range(1000), 40, 7, "a"))


def test_a_mutant_is_reported_where_it_lies_in_the_users_tree(tree: Path) -> None:
    """The SDK's package lies elsewhere in a staged tree; git takes the diff."""
    change = patch("edl/master/leases.py", _CODE, _CODE.replace("/ 2", "* 2"))
    mutant = _at_home({"file": "edl/master/leases.py", "diff": change.diff})

    assert mutant["file"] == "sdk/src/edl/master/leases.py"
    command = ("git", "apply", "--check", "-")
    subprocess.run(command, cwd=tree, check=True, input=mutant["diff"].encode())  # noqa: S603


def test_a_patch_names_line_and_change() -> None:
    """A patch has the line in the user's file, and a diff."""
    change = patch("a.py", _CODE, _CODE.replace("/ 2", "* 2"))
    assert (change.line, change.before, change.after) == (
        3,
        "return number / 2",
        "return number * 2",
    )
    assert change.diff.startswith("--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n")


def test_a_patch_that_changes_nothing_is_an_error() -> None:
    """Such a mutant would survive whatever the tests are."""
    with pytest.raises(ValueError, match=r"a\.py changes nothing"):
        patch("a.py", _CODE, _CODE)


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (0, Verdict.SURVIVED),
        (1, Verdict.KILLED),
        (2, Verdict.KILLED),  # the mutant broke an import
        (-15, Verdict.KILLED),
        (-24, Verdict.TIMED_OUT),
        (36, Verdict.TIMED_OUT),
        (5, Verdict.NOT_COVERED),
        (33, Verdict.NOT_COVERED),
    ],
)
def test_exit_codes_say_what_came_of_a_mutant(code: int, meaning: Verdict) -> None:
    """Passing tests detect nothing; any exit code not defined by mutmut or pytest is a kill."""
    assert verdicts.verdict(code) is meaning


@pytest.mark.parametrize("code", [4, 255])
def test_tests_that_did_not_run_kill_nothing(code: int) -> None:
    """Wrong arguments and a crash of pytest are tried again, and never count as a kill."""
    assert verdicts.needs_second_try(code)
    assert verdicts.verdict(code) is Verdict.BROKEN
    assert VerdictCounts.of([Verdict.KILLED, Verdict.BROKEN]).rate == 0.5


def test_survivors_and_time_outs_are_tried_again_and_nothing_else() -> None:
    """The machine may have been slow; a kill, and a function without tests, stay what they are."""
    assert [code for code in (0, 1, 33, -24, 36) if verdicts.needs_second_try(code)] == [0, -24, 36]


def test_the_rate_leaves_equivalent_mutants_out() -> None:
    """A mutant without a test lowers the rate, one that no test can notice does not."""
    count = VerdictCounts.of(
        [Verdict.KILLED] * 6
        + [Verdict.TIMED_OUT, Verdict.SURVIVED, Verdict.NOT_COVERED, Verdict.EQUIVALENT]
    )
    assert count.tried == 10
    assert count.rate == pytest.approx(7 / 9)


def test_a_room_of_equivalent_mutants_misses_nothing() -> None:
    """No division by zero where nothing can be noticed."""
    count = VerdictCounts.of([Verdict.EQUIVALENT])
    assert (count.rate, count.rate_text) == (1, "-")


def test_an_equivalent_mutant_is_known_by_its_lines(tmp_path: Path) -> None:
    """It is recognised after other lines of the file have moved; another change is not."""
    listed = tmp_path / "list.toml"
    listed.write_text(
        '[[equivalent]]\nfile = "a.py"\nfunction = "half"\nbefore = "x = 1"\nafter = "x = 2"\n'
        'reason = "x is not used"\n',
        encoding="utf-8",
    )
    entries = equivalents.load(listed)
    mutant = {"file": "a.py", "function": "half", "before": "x = 1", "after": "x = 2", "line": 77}
    assert equivalents.reason(mutant, entries) == "x is not used"
    assert equivalents.reason(mutant | {"after": "x = 3"}, entries) is None


@pytest.mark.parametrize(
    "entry", ['[[equivalent]]\nfile = "a.py"\n', "equivalent = [3]\n", "equivalent = ["]
)
def test_a_wrong_entry_of_the_list_is_named(tmp_path: Path, entry: str) -> None:
    """With its number and the required fields, or with the line that is not TOML."""
    path = tmp_path / "list.toml"
    path.write_text(entry, encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"entry 1 needs exactly file, function|at end of|Unclosed"
    ):
        equivalents.load(path)


def _is_of_today(entry: Equivalent) -> bool:
    """Whether the tree still has the lines of an entry, and the entry has a reason."""
    code = (_ROOT / entry.file).read_text(encoding="utf-8")
    lines = {line.strip() for line in code.splitlines()}
    return set(entry.before.splitlines()) <= lines and bool(entry.reason.strip())


def test_equivalent_mutants_are_of_code_that_there_is() -> None:
    """Entries are removed with their lines, and each has a reason."""
    outdated = Equivalent("policy/names.py", "object_name", "no such line", "x", "none")
    assert not _is_of_today(outdated)
    assert [entry for entry in equivalents.load() if not _is_of_today(entry)] == []


def test_rooms_name_files_and_tests_that_there_are() -> None:
    """A file that was renamed would drop out of mutation testing unseen."""
    for room in rooms(_ROOT).values():
        for pattern in room.sources:
            home = _ROOT / "sdk" / "src" if pattern.startswith("edl/") else _ROOT
            assert list(home.glob(pattern)), pattern
        for name in (*room.tests, *room.excluded_tests):
            file, _, test = name.partition("::")
            assert (_ROOT / file).exists(), name
            assert not test or f"def {test}(" in (_ROOT / file).read_text(encoding="utf-8"), name


def test_the_masters_pure_files_are_those_of_its_contract() -> None:
    """With those that wait, write files or hold locks, and the checks that pserver uses too."""
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (pure,) = [
        contract
        for contract in contracts["contracts"]
        if contract["name"].startswith("The master's")
    ]
    files = {f"{module.replace('.', '/')}.py" for module in pure["source_modules"]}
    names = "durable_ledger fence journal service snapshots threads waiting_calls"
    served = {f"master/{name}.py" for name in names.split()}
    assert set(rooms(_ROOT)["master"].sources) == files | served | {"runtime/call_checks.py"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with a package, the SDK's package, something ignored and something new."""
    root = tmp_path / "tree"
    contents = {
        ".gitignore": "build/\n",
        "pyproject.toml": "[project]\n",
        "policy/half.py": _CODE,
        "sdk/src/edl/master/leases.py": _CODE,
        "docs/page.md": "page",
        "build/old": "",
    }
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    for command in (("git", "init", "-q"), ("git", "add", ".")):
        subprocess.run(command, cwd=root, check=True)  # noqa: S603 - of this test alone
    (root / "policy" / "new.py").write_text("", encoding="utf-8")
    return root


def test_a_staged_tree_has_all_packages_at_its_root(tree: Path, tmp_path: Path) -> None:
    """Uncommitted changes are tried too, what git ignores is left out, the user's tree stays."""
    (tree / "policy/half.py").write_text("changed = True\n", encoding="utf-8")
    before = _contents(tree)
    target = tmp_path / "staged"
    stage.stage(tree, target, Room("policy", ("policy/*.py", "edl/master/*.py"), ("tests/policy",)))
    assert (target / "policy/half.py").read_text(encoding="utf-8") == "changed = True\n"
    staged = {str(path.relative_to(target)) for path in target.rglob("*.*")}
    assert staged == {
        ".gitignore",
        "pyproject.toml",
        "policy/half.py",
        "policy/new.py",
        "edl/master/leases.py",
        "docs/page.md",
    }
    assert _contents(tree) == before


def _contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_outside_of_a_checkout_it_says_so(tmp_path: Path) -> None:
    """With git's message."""
    with pytest.raises(LookupError, match=r"a git checkout is needed: .*not a git repository"):
        stage.stage(tmp_path, tmp_path / "staged", Room("policy", ("policy/*.py",), ()))


@pytest.mark.parametrize(
    "words",
    [
        ["--count", "0"],
        ["--count", "-5"],
        ["--seed", "-3"],
        ["--seed", "x"],
        ["--room", "attic"],
        ["--workers", "0"],
        ["--resume", "--seed", "3"],
        ["--resume", "--room", "kube"],
    ],
)
def test_bad_use_is_refused_before_anything_is_copied(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and the option is named."""
    with pytest.raises(SystemExit) as ended:
        __main__.main(words)

    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err.splitlines()[-1]


def test_without_an_interrupted_run_there_is_nothing_to_go_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says so; nothing is copied."""
    monkeypatch.setattr(__main__, "_CHOSEN", tmp_path / "chosen.json")

    assert __main__.main(["--resume"]) == 1
    assert capsys.readouterr().err.strip().startswith("mutants: no run to go on with")


def test_a_run_that_names_no_room_tries_what_decides() -> None:
    """The commands of admins and users are tried when they are named, and no run leaves a room out."""
    tried = {name for name, room in rooms(_ROOT).items() if room.tried_by_default}
    decide = {"policy", "master", "kube", "reconciler", "extender", "webhook", "pserver", "sdk"}
    assert tried == decide
    assert set(rooms(_ROOT)) - tried == {"admin", "cli"}


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["--seed", "7"], "make mutants SEED=7"),
        (["--seed", "7", "--count", "25"], "make mutants SEED=7 COUNT=25"),
        (["--seed", "7", "--room", "kube"], 'make mutants SEED=7 ROOM="kube"'),
    ],
)
def test_a_run_says_what_repeats_it(
    words: list[str],
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The seed always, count and rooms where they are not those of every run; before it begins."""

    def run(*_arguments: object) -> None:
        raise LookupError("no checkout")

    monkeypatch.setattr(__main__, "Run", run)

    assert __main__.main(words) == 1
    assert capsys.readouterr().out.startswith(f"{command} tries the same")


def test_staging_replaces_what_lay_there(tree: Path, tmp_path: Path) -> None:
    """Files of an earlier run are not taken for results of this one."""
    target = tmp_path / "staged"
    target.mkdir()
    (target / "again.json").write_text("{}", encoding="utf-8")
    stage.stage(tree, target, Room("policy", ("policy/*.py",), ("tests/policy",)))
    assert not (target / "again.json").exists()


def test_a_pattern_without_files_is_an_error(tree: Path, tmp_path: Path) -> None:
    """A room without code would be without survivors."""
    with pytest.raises(LookupError, match=r"no file policy/gone\.py"):
        stage.stage(tree, tmp_path / "staged", Room("policy", ("policy/gone.py",), ()))


def test_results_are_read_while_they_are_written(tmp_path: Path) -> None:
    """A file that mutmut is just writing has no results yet; those not tried have none."""
    folder = tmp_path / files.OUTPUT
    folder.mkdir()
    (folder / "a.py.meta").write_text(json.dumps({"exit_code_by_key": {"x": 1, "y": None}}))
    (folder / "b.py.meta").write_text('{"exit_code')
    assert files.exit_codes(tmp_path, ["a.py", "b.py", "c.py", "a.py"]) == {"x": 1}


def test_fast_tests_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unmeasured tests come last; without measurements the order is unchanged."""
    monkeypatch.chdir(tmp_path)
    items: list[Any] = [SimpleNamespace(nodeid=name) for name in ("slow", "new", "fast")]
    order.pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == ["slow", "new", "fast"]
    order.STATS.write_text(json.dumps({"duration_by_test": {"slow": 2.0, "fast": 0.1}}))
    order.pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == ["fast", "slow", "new"]


def _mutant(verdict: Verdict, **fields: str) -> dict[str, Any]:
    mutant = {"file": "policy/half.py", "line": 3, "function": "half", "diff": "-a\n+b\n"}
    return mutant | {"verdict": verdict} | fields


def test_the_report_shows_what_was_not_noticed(tmp_path: Path) -> None:
    """Survivors stand there with place and diff, equivalent ones with their reason, kills not."""
    outcomes = {
        "policy": Outcome(
            40,
            [
                _mutant(Verdict.KILLED, function="killed"),
                _mutant(Verdict.SURVIVED),
                _mutant(Verdict.EQUIVALENT, function="same", reason="never negative"),
            ],
        )
    }
    shown = report.survivors(outcomes)
    assert "policy: policy/half.py:3 half: survived\n-a\n+b" in shown
    assert "same: equivalent (never negative)" in shown
    assert "killed" not in shown
    report.write(tmp_path / "made" / "report.json", outcomes, {"seed": 7})
    whole = json.loads((tmp_path / "made" / "report.json").read_text(encoding="utf-8"))
    assert whole["seed"] == 7
    assert whole["rooms"]["policy"] == {
        "mutants": 40,
        "tried": 3,
        "killed": 1,
        "survived": 1,
        "timed_out": 0,
        "not_covered": 0,
        "broken": 0,
        "equivalent": 1,
        "rate": 0.5,
    }
    assert [mutant["verdict"] for mutant in whole["mutants"]] == [
        "killed",
        "survived",
        "equivalent",
    ]
