"""The command `edl`: elastic training on this machine, and jobs for the cluster."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version

from edl.commands import predict, run, submit, train, words
from edl.errors import EdlError


def main(argv: Sequence[str] | None = None) -> int:
    """Parses, and does what is asked for."""
    asked = _parser().parse_args(argv)
    logging.basicConfig(format="%(asctime)s edl %(message)s", datefmt="%H:%M:%S")
    live = sys.stdout.isatty()
    logging.getLogger("edl").setLevel(logging.ERROR if live else logging.INFO)
    try:
        code: int = asked.act(asked)
    except EdlError as error:
        print(f"edl: {error}", file=sys.stderr)
        return words.BAD_USE
    return code


def _parser() -> words.Parser:
    parser = words.Parser(prog="edl", description="Elastic training.", epilog=words.CODES)
    parser.add_argument("--version", action="version", version=f"edl {version('edl-sdk')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for one in (train, predict, submit, run):
        about = f"{one.HELP[0].upper()}{one.HELP[1:]}."
        command = commands.add_parser(
            one.NAME, help=one.HELP, description=about, epilog=words.CODES
        )
        one.describe(command)
        command.set_defaults(act=one.act)
    return parser


if __name__ == "__main__":
    sys.exit(main())
