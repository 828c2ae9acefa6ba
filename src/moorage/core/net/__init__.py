"""HTTP and DNS clients, and the rules about addresses that user URLs may reach."""
