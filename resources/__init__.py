"""Icons (drawn for this project) and the embedded model. No code."""
