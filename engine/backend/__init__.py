"""Backends: they turn a StepPlan into a StepResult."""
