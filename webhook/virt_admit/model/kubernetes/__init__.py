"""Facts about Kubernetes itself: objects, kinds, the cluster that look-ups read,
selectors and units.
"""
