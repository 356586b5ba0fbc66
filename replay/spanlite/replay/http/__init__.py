"""Requests to a service, one for each archived trace, sent when they are due whatever the service does."""
