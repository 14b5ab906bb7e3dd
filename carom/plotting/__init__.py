"""What figures have in common: style, files, scenes and animations."""
