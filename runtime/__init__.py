"""Infrastructure of processes: settings, HTTPS serving, certificates, logs, metrics, signals."""
