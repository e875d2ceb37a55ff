"""The report of ``virt-admit explain``: one value, printed as text, JSON and HTML."""
