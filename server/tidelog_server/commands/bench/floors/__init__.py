"""What the same work costs without Tidelog."""
