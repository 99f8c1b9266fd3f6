"""Tables, figures and the page, made from stored records alone."""
