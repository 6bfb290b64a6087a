"""The commands of `kubectl edl`: one module for each, with its `COMMAND`."""
