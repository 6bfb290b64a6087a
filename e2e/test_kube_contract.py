"""The contract of an API server, held by a real one: what the fake promises is true."""
