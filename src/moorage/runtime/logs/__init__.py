"""Logs of workloads: their files, written by shims and read by the control process."""
