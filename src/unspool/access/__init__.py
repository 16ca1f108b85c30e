"""Keys, scopes, and the projects that a caller may see."""
