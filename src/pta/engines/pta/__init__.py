"""PTA's recurrence: the rule, its touches, and forms for one sample, a chunk and a compiled loop."""
