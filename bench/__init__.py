"""The bars that Moorage has to clear, measured side by side with what they are compared to: `python -m bench`."""
