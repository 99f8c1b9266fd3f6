"""What is measured on episodes, and the verbs that measure it."""
