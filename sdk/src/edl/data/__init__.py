"""A job's data: batches of leased records, prefetch, progress, checkpoints, evaluation, export."""
