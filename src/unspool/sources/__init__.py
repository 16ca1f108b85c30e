"""Sources of documents: folders, git repositories, exports, and the text inside files."""
