"""The work of one trainer: synchronous or asynchronous training, and prediction."""
