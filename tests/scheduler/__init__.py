"""Proof of our model of kube-scheduler: random clusters, judged by the model and by
kube-scheduler's own filters.
"""
