"""kube-scheduler's HTTP extender: filters and scores nodes for training pods, chooses victims."""
