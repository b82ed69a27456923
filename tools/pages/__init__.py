"""The pages of the site that are made from the program: API, commands, settings and protocol; and the tree of all."""
