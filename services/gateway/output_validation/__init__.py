"""Whether an answer has the form that was asked for: pure rules, and a thread for them."""
