"""The command `edl`: elastic training on this machine, and jobs for the cluster."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from edl.commands import agent, convert, plugins, predict, run, submit, train
from edl.errors import EdlError, printable
from edl.jobs import flags
from edl.master.variables import report_unknown


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line and runs the command; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    plugin_code = plugins.run(words)
    if plugin_code is not None:
        return plugin_code
    args = _parser().parse_args(words)
    logging.basicConfig(format="%(asctime)s edl %(message)s", datefmt="%H:%M:%S")
    report_unknown()
    live = sys.stdout.isatty()
    logging.getLogger("edl").setLevel(logging.ERROR if live else logging.INFO)
    try:
        code: int = args.run(args)
    except EdlError as error:
        print(f"edl: {printable(error)}", file=sys.stderr)
        return flags.BAD_USE
    return code


def _parser() -> flags.Parser:
    epilog = f"{plugins.epilog()}{flags.CODES}"
    parser = flags.Parser(prog="edl", description="Elastic training.", epilog=epilog)
    parser.add_argument("--version", action="version", version=f"edl {_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for subcommand in (train, predict, submit, convert, run, agent):
        description = f"{subcommand.HELP[0].upper()}{subcommand.HELP[1:]}."
        command = commands.add_parser(
            subcommand.NAME, help=subcommand.HELP, description=description, epilog=flags.CODES
        )
        subcommand.add_arguments(command)
        command.set_defaults(run=subcommand.run)
    return parser


def _version() -> str:
    try:
        return version("edl-sdk")
    except PackageNotFoundError:
        return "from source, not installed"


if __name__ == "__main__":
    sys.exit(main())
