"""Infrastructure of processes: settings, HTTP servers, certificates, logs, metrics, signals."""
