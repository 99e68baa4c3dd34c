"""Files the window shows: icons (drawn for this project). No code."""
