"""The report of ``virt-admit upgrade``: one value, printed as text, JSON and HTML."""
