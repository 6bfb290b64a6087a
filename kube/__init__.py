"""All access to the API server: requests, errors, the watch cache and leases."""
