"""Callbacks for trainers. Each module imports the trainer's package; nothing else of msprobe needs them."""
