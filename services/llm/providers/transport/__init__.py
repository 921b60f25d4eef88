"""HTTP to providers: kept connections over HTTP/1.1 and HTTP/2, TLS, server-sent events. It knows
neither requests nor providers."""
