"""Two random views of each frame: crops, mirroring, colour jitter, and the letterboxed view of evaluation."""
