"""Function calls in the edge: queues, instances and fair shares."""
