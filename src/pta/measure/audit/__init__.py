"""An audit: whether adaptation helped on recorded answers, from a person's labels of few of those that it changed."""
