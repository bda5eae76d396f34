"""Telling people: which events make a notice for whom, and delivering them by mail, webhook and chat."""
