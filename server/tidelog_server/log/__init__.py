"""One log per channel: ticks, group commit, watermark, tail ring and scans."""
