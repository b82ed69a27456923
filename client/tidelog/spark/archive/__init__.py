"""Archives: the manifest, its files, and reads divided between files and log."""
