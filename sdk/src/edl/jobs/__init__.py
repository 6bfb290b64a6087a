"""What one trainer does: of `edl train`, synchronous or with parameter servers, and of `edl predict`."""
