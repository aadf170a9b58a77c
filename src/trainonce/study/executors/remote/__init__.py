"""What executors on other machines share: the driver alone writes to the store, workers send back what they made."""
