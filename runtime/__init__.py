"""The parts that all server processes share: settings, HTTP servers, certificates, logs, metrics."""
