"""Data of a job: batches of leased records, prefetch, progress, checkpoints, evaluation, export."""
