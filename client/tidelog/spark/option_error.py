"""The error of all modules that parse options."""


class OptionError(ValueError):
    """An option is unknown, invalid or contradicts another one; the message names it and the accepted values."""
