"""The HTTP side of the service: connections, limits, routes, protocol and page."""
