"""The report of ``virt-admit drain``: one value, printed as text, JSON and HTML."""
