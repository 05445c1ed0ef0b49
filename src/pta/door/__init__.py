"""Where foreign bytes come in: files, archives, pictures, clouds and weights are checked here, completely and once."""
