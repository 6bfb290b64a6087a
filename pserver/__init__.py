"""Parameter servers of one asynchronous job: they hold parameters; trainers pull these and push gradients."""
