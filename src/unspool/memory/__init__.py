"""Conversations and response histories."""
