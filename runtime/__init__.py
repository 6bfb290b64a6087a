"""Process plumbing that knows no domain: settings, HTTPS serving, certificates, logs, metrics."""
