"""Lists and watches in bounded steps: pages, differences, and the looks that they take."""
