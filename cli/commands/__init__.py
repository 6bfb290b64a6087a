"""The commands of `kubectl edl`, one module each."""
