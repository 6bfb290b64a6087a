"""Commands about the jobs of a cluster: `kubectl edl`, and `edl` where the SDK is installed."""
