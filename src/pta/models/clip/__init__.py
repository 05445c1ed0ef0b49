"""CLIP in OpenAI's layout, from any of its checkpoints."""
