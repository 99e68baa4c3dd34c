"""Reading GGUF model files over mmap: metadata, tensor directory, tensor bytes."""
