"""Where the truth about channels lives: a small ordered map with revisions, and its implementations."""
