"""The ui listener: who may come in, and what everyone inside may ask for."""
