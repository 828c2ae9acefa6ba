"""`moorage functions`: deploy, call and observe functions, and run them on this machine."""
