"""The backend of `torch.compile`: torch finds it by the entry point `torch_dynamo_backends`, under the name "partita"."""
