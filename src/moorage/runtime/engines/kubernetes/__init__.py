"""Engine that runs workloads as pods of a Kubernetes cluster.

Kubernetes places, restarts and moves the pods. The platform keeps releases, probes, drains and scaling.
"""
