"""Drawing the figures of a checkout: ``dispersion figures``. Only `style` loads matplotlib."""
