"""Formats plans and runs for people and programs."""
