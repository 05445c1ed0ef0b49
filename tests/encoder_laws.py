"""What holds for every encoder whose texts can be tuned."""

import torch


def require_texts_follow_their_embeddings(encoder, texts):
    """Texts equal the path from their embeddings, and gradients reach those that are read, and no others."""
    ids, mask = encoder.tokenize(texts)
    embeddings = encoder.embed_ids(ids).requires_grad_()
    features = encoder.text_from_embeddings(embeddings, mask)
    torch.testing.assert_close(features.detach(), encoder.encode_texts(texts))
    features[:, 0].sum().backward()
    assert (embeddings.grad[mask].norm(dim=1) > 0).all()
    assert not embeddings.grad[~mask].any()
