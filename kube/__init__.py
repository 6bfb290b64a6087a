"""All access to the API server: requests, errors, the watch cache, leases, and a fake server."""
