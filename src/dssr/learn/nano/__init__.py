"""How the built-in model is made: names, tokenizer, data, curriculum, training."""
