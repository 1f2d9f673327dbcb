"""The graphs that several tests share, each made in one place.

`topologies` has small graphs of a known shape, `networks` small models that compute something, `drawn` random graphs for
hypothesis; `printed` those that the text form has to survive, `on_integers` graphs for growth, `pages` those for the page.
"""
