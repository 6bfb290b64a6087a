"""Every shell command of the documents is run by a test, or says that it is not (decision 0049)."""

import re

import pytest

from e2e.documented import ROOT, Block, Run, all_blocks, blocks, run_by

BLOCKS = list(all_blocks())
_PAGE = """# Page

<!-- run by: e2e/test_x.py -->
```sh
kubectl get pods \\
  -A   # all
# not a command

make demo
```

```yaml
a: 1
```

- in a list

  <!-- not run: it needs Docker -->
  ```bash
  docker build .
  ```

```console
unsaid
```
"""


def _program(command: str) -> str:
    """What a command runs: the module of a Python, a command of `kubectl edl`, else its first word."""
    module = re.search(r"\bpython -m (\w+)|\bkubectl edl (\w+)", command)
    return module[1] or module[2] if module else command.split(maxsplit=1)[0]


def _of(block: Block) -> str:
    return f"{block.page}:{block.line}"


@pytest.mark.parametrize("block", BLOCKS, ids=_of)
def test_each_block_says_who_runs_it(block: Block) -> None:
    """A test that is there and that asks for its blocks; or the reason why nothing does."""
    assert block.run is not Run.UNSAID, f"{_of(block)}: say who runs it (e2e/documented.py)"
    if block.run is Run.NEVER:
        assert len(block.about.split()) >= 3
        return
    test = ROOT / block.about
    assert test.is_file()
    if block.run is Run.VERBATIM:
        assert f'documented.run_by("{block.about}")' in test.read_text("utf-8")


def test_programs_that_a_test_runs_alike_are_in_its_file() -> None:
    """A block that only resembles what a test does names at least the same programs."""
    for block in BLOCKS:
        if block.run is Run.ALIKE:
            text = (ROOT / block.about).read_text("utf-8")
            programs = {_program(command) for command in block.commands}
            assert [name for name in programs if name not in text] == [], _of(block)


def test_most_blocks_are_run() -> None:
    """What is not run stays the exception."""
    runs = [block.run for block in BLOCKS]

    assert runs.count(Run.NEVER) < len(runs) / 3
    assert runs.count(Run.VERBATIM) > len(runs) / 3


def test_blocks_are_found_with_their_marks() -> None:
    """Of shells alone, in lists too; commands are whole, and comments are none."""
    found = list(blocks("page.md", _PAGE))

    assert [(block.run, block.about) for block in found] == [
        (Run.VERBATIM, "e2e/test_x.py"),
        (Run.NEVER, "it needs Docker"),
        (Run.UNSAID, ""),
    ]
    assert found[0].commands == ["kubectl get pods    -A   # all", "make demo"]
    assert found[0].line == 4
    assert run_by("e2e/none.py") == []
