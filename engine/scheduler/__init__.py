"""Sessions, requests, and the decision of what the next step computes."""
