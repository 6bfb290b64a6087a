"""Stand-ins for parts of a cluster, for tests, benchmarks and experiments. No room imports them."""
