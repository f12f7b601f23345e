"""The only room that talks to a Kubernetes API."""
