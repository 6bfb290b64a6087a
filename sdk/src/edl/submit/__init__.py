"""`edl submit`: a model file becomes an elastic Job of the cluster."""
