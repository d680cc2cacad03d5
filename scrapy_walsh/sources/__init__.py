"""The declared sources of the main spider: their files, their answers, their report (R6, R9)."""
