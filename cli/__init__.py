"""Commands for the jobs of a cluster: `kubectl edl`, and `edl` if the SDK is installed."""
