"""The verbs of the command line; the only room that prints.

Importing it costs milliseconds: each verb imports what it needs when it runs.
"""
