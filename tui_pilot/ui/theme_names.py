"""The themes' names, apart from their colours: the command line asks for them without loading the screen."""

THEMES = ("dark", "light", "high-contrast", "colour-blind", "ansi")
