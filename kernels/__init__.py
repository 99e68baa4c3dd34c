"""What the machine computes: arrays and bytes in and out. No model, no session, no Qt."""
