"""Facts: what an object says, and the tables of KubeVirt,
kube-scheduler and the operators that act on nodes.

Pure, and independent of all rules and forecasts.
"""
