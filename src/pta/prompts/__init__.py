"""Class names and templates to text anchors."""
