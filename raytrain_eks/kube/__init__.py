"""The only room that talks to a Kubernetes API.

It stands on lightkube's HTTP and credentials (extra `kube`), imported only when a connection is opened. Objects are
plain dicts as the API writes them. It must never print, never ask a person, and never hold a token in a message.
"""
