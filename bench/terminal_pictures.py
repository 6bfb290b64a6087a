"""`python -m bench.terminal_pictures`: writes pictures of commands in a terminal into docs/pictures.

The commands are the real ones. They answer about a snapshot of a small cluster in virtual time, so the
pictures are the same each time. Nothing in them is loaded from outside.
"""

import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from cli.__main__ import main as edl
from policy.cluster.snapshot import Job, Node, Pod
from policy.planning import snapshot_file
from policy.planning.plan import Plan
from policy.planning.plan_input import PlanInput
from policy.planning.snapshot_file import SnapshotFile
from runtime.command_line import Parser
from simulator.run import play
from simulator.workload import Arrival, Workload

PICTURES = Path(__file__).parents[1] / "docs/pictures"
_COLUMNS = 92
_FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
_FORMAT = _FONTS.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code, monospace", "monospace")
_POLICY = """\
fairness: {queueWeights: {night: 3}}
reserve: {headroom: {cpu: 10%}}
"""
COMMANDS = {
    "plan": "plan --snapshot now.json --policy new.yaml",
    "when": "when ml/translate --snapshot now.json",
}
"""Picture -> the arguments of its command."""
_GIB = 2**30
_END_S = 120.0


def pictures() -> Iterator[tuple[str, str]]:
    """Name and SVG of each picture."""
    with TemporaryDirectory() as directory, chdir(directory):
        Path("now.json").write_bytes(snapshot_file.dumps(SnapshotFile(_cluster())))
        Path("new.yaml").write_text(_POLICY, "utf-8")
        for name, words in COMMANDS.items():
            yield f"terminal-{name}.svg", _picture(words)


def _picture(words: str) -> str:
    """Returns a command and what it prints."""
    output = io.StringIO()
    with redirect_stdout(output):
        code = edl(words.split())
    if code:
        raise RuntimeError(f"edl {words} ended with {code}")
    console = Console(file=io.StringIO(), record=True, width=_COLUMNS)
    console.print(Text(f"$ kubectl edl {words}", style="bold"))
    console.print(Text(output.getvalue().rstrip()))
    command = words.partition(" ")[0]
    return console.export_svg(
        title="EDL", theme=DIMMED_MONOKAI, code_format=_FORMAT, unique_id=f"edl-{command}"
    )


def _cluster() -> PlanInput:
    """Six nodes with services, two jobs that share the rest, and one whose minimum waits."""
    nodes = tuple(
        Node(f"node-{i}", {"cpu": 18_000, "memory": 64 * _GIB, "pods": 110}) for i in range(6)
    )
    services = tuple(
        Pod("shop", f"web-{i}", f"web-{i}", {"cpu": 3000, "pods": 1}, priority=100)
        for i in range(8)
    )
    jobs = (_job("digits", 2, 12, 4), _job("vision", 4, 16, 3, queue="night"))
    arrivals = (
        Arrival(0.0, pods=services),
        *(Arrival(5.0 + i, job=job) for i, job in enumerate(jobs)),
        Arrival(60.0, job=_job("speech", 8, 8, 5)),
        Arrival(80.0, job=_job("translate", 6, 8, 5)),
    )
    inputs: list[PlanInput] = []

    def observe(plan_input: PlanInput, _: Plan) -> None:
        inputs.append(plan_input)

    play(Workload(nodes, arrivals, _END_S), observe=observe)
    return inputs[-1]


def _job(name: str, low: int, high: int, cpu: int, queue: str = "day") -> Job:
    requests = {"cpu": cpu * 1000, "memory": 2 * _GIB, "pods": 1}
    return Job("ml", name, f"uid-{name}", low, high, requests, queue=queue)


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the pictures; returns 0."""
    parser = Parser(prog="python -m bench.terminal_pictures", description=__doc__)
    parser.add_argument("--output", type=Path, default=PICTURES, help="default: %(default)s")
    folder: Path = parser.parse_args(argv).output
    for name, svg in pictures():
        (folder / name).write_text(svg, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
