"""The results of ``check`` and ``scan``, and their outputs: formats, metrics, objects in the cluster."""
