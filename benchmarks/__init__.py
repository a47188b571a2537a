"""Measures pronk against what users would pick instead. See README.md here."""
