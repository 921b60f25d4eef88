"""What keeps the tail short: one policy in each file, none of which knows gRPC, composed by their caller."""
