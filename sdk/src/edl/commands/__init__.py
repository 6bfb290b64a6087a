"""The subcommands of `edl`: one module for each."""
