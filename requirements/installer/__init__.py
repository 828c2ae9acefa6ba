"""The setup of a checkout: creates the environment and installs the locked packages, with progress.

It runs before anything is installed, so it imports the standard library only.
"""
