"""Reports as self-contained pages.

Import it only where a page is written: Jinja2 takes time to load.
"""
