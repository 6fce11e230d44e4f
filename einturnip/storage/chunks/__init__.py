"""Tensors stored in chunks: files of plain chunks, and chunks that are decoded in bounded memory."""
