"""Fuzzing: what may come in is changed at random, and what must hold for every input is checked.

``make fuzz MINUTES=…`` runs it for a time; ``test_fuzz.py`` runs a few inputs of each target in
``make test``.
"""
