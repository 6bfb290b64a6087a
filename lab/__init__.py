"""Stand-ins for parts of a cluster, for tests, benchmarks and experiments. Not shipped: no room imports it."""
