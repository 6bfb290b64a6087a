"""What every server process needs: settings, HTTP servers, certificates, logs, metrics."""
