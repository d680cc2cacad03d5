"""Black-box tests of the main spider: real crawls of sources as publishers serve them."""
