"""HTTP to providers: kept connections over HTTP/1.1 and HTTP/2, TLS, server-sent events. What is said over it, and to
whom, is for others to know."""
