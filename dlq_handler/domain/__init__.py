"""Pure decisions. Standard library only: no I/O, no await, no clock, no random, no logging."""
