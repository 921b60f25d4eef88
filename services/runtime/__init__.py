"""Code that every service process shares. A module moves in when three services use it, with tests of its own."""
