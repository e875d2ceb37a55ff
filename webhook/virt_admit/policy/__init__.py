"""Decisions: which rule acts how and where.

``shipped/`` holds the policies that come with virt-admit.
"""
