"""The results of each verb as values, and their outputs: text, JSON, pages, metrics,
objects in the cluster.
"""
