"""Image models as a service of their own."""
