"""The CPU engine: `README.md` in this folder says what it is for and what each part buys."""
