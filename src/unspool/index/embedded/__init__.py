"""The embedded index: a folder beside an SQLite catalog, derived from it, that can be deleted at
any time.
"""
