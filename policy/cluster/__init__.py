"""The cluster as decisions see it: records of nodes, pods and jobs, and sums over them."""
