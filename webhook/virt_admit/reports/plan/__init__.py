"""The report of ``virt-admit plan``: one value, printed as text, JSON,
HTML and a folder of scripts and patches.
"""
