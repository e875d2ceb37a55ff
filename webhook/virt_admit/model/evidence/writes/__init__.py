"""Writes that the API server refuses: nothing answers for a webhook, or a policy denies them; and
those that another writer takes back.
"""
