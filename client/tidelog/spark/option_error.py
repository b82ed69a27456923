"""What is wrong with an option, whichever module reads it."""


class OptionError(ValueError):
    """An option is unknown, malformed or contradicts another one; the message names it and says what is allowed."""
