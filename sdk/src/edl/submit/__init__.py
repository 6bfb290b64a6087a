"""`edl submit`: turns a model file into an elastic Job on the cluster."""
