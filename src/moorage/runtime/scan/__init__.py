"""Scan of uploads for programs, malware, coin miners and phishing kits."""
