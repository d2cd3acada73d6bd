"""What the operator writes: read, checked as a whole, and turned into values of the core."""
