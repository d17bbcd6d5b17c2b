"""The observer of a dry run: what `headroom forecast` puts on Python's path. It acts once PyTorch is imported."""
