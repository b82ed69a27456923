"""The node: wires the features, and checks their records before a start."""
