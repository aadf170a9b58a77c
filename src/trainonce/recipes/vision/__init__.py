"""What the vision recipes share: files and archives, checks, encoders, panels, the training loop."""
