"""kube-scheduler's HTTP extender: filters and scores nodes for training pods, and chooses victims."""
