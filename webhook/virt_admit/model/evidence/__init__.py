"""What objects themselves report as wrong, and which objects stand behind which:
also those of unknown kinds.
"""
