"""The subcommands of `edl`, one module each."""
