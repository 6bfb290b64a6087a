"""Jobs and TrainingJobs: accounting, status and metrics."""
