"""What ``check`` and ``scan`` found, and how it leaves: formats, metrics, objects in the cluster."""
