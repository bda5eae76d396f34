"""Django's PostgreSQL backend with a timeout for every response of the server."""
