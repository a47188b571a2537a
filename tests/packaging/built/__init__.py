"""Tests of what is built from this project: distributions, and projects that embed it."""
