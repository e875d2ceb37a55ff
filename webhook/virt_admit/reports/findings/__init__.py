"""The report of ``virt-admit check`` and ``scan``: what the rules found."""
