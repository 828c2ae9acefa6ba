"""Hourly visit figures of projects from the gateway's access log.

Analytics sets no cookies and stores no IP addresses.
"""
