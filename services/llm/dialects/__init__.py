"""The words of providers' APIs, without any I/O: `*_request` writes a request, `*_answer` reads an answer."""
