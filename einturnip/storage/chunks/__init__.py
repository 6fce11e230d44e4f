"""Tensors stored in chunks: files of plain chunks, and chunks that are decoded within a stated memory."""
