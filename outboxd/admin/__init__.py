"""The admin role: metrics, health and an API for operators, over HTTP and a Unix socket."""
