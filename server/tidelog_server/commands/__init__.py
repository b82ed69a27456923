"""The commands that need the server package; they join ``tidelog_cli`` as entry points."""
