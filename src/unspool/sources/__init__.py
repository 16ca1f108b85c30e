"""Where documents come from: folders, git repositories, and the text inside their files, with
secrets masked.
"""
