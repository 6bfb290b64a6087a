"""`make demo`: services and elastic training on one local cluster, live, then in figures."""
