import io

from rich.console import Console

from e2e.cluster.progress import BuildState, PlainProgress, Terminal, display


def building() -> BuildState:
    """A build in its second binary."""
    state = BuildState("list of Go packages")
    for line in ("go: downloading k8s.io/api v0.36.3", "fmt", "k8s.io/api/core/v1", ""):
        state.saw(line)
    state.begin("kwok (2 of 6)", "sigs.k8s.io/kwok/cmd/kwok")
    return state


def test_go_tells_what_it_does() -> None:
    """Downloads, compiled packages and the link step are told apart; notes are not counted."""
    state = building()
    snapshots = []
    for line in ("go: downloading x v1", "fmt", "# fmt", "sigs.k8s.io/kwok/cmd/kwok"):
        state.saw(line)
        snapshots.append((state.compiled, state.activity))

    assert state.total == 2
    assert snapshots == [
        (0, "downloading x v1"),
        (1, "compiling fmt"),
        (1, "compiling fmt"),
        (2, "linking"),
    ]
    assert state.line == "kwok (2 of 6), 2 of at most 2 packages, linking"
    state.saw("net")
    assert state.line == "kwok (2 of 6), 3 packages, compiling net"  # built for another binary too


def test_lines_come_when_something_else_is_built() -> None:
    """Without a terminal the same title is not repeated at once."""
    output = io.StringIO()
    with PlainProgress(Console(file=output, width=200)) as view:
        view.say("begin")
        state = building()
        for _ in range(5):
            view.show(state)
        state.begin("kubectl (6 of 6)", "k8s.io/kubernetes/cmd/kubectl")
        view.show(state)

    lines = output.getvalue().splitlines()
    assert lines[0] == "begin"
    assert [line.partition("] ")[2] for line in lines[1:]] == [
        "kwok (2 of 6), 0 of at most 2 packages",
        "kubectl (6 of 6), 0 of at most 2 packages",
    ]


def test_a_terminal_gets_a_bar() -> None:
    """Title and activity are shown in place; what was said stays."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=120)
    with Terminal(console) as view:
        view.say("begin")
        state = building()
        view.show(state)
        state.saw("fmt")
        view.show(state)

    assert "begin" in output.getvalue()
    assert "kwok (2 of 6)" in output.getvalue()
    assert "compiling fmt" in output.getvalue()


def test_the_display_suits_the_output() -> None:
    """A bar for a terminal, lines for a file or a CI log."""
    assert isinstance(display(Console(file=io.StringIO(), force_terminal=True)), Terminal)
    assert isinstance(display(Console(file=io.StringIO())), PlainProgress)
