"""From a model file's own keys to token ids and back: tokenizer, chat template, text assembly."""
