"""What every service process shares. A thing moves in when three services use it, with tests of its own."""
