"""The doors: each one parses, calls one method of `Corpus`, and renders what comes back."""
