"""Rules that differ only in what a row of a table says. A file declares one rule for each row; the
cases of a row are in the folder of its id, as for every rule.
"""
