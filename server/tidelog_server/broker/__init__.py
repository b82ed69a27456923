"""The channels of this node, and the features built on them: broadcasts, groups, transactions and retention."""
