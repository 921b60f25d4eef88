"""What is made ready before anybody asks: connections, engines, and the prompts that many requests begin with."""
