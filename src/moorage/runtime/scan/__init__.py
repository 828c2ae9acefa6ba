"""Looks at uploads before they are stored: programs, known malware, coin miners and phishing kits are refused."""
