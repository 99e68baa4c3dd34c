"""What the machine computes: arrays and bytes in, arrays and bytes out. No model, no session, no Qt."""
