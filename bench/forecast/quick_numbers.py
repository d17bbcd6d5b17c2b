"""Random numbers that are made quickly, for programs that are timed or traced: what their weights are does not matter, that they are not zero does."""


def quick_numbers(torch):
    """Large random tensors on the host are copies of one piece: a program begins sooner, and its products still see random numbers."""
    piece = torch.randn(1 << 20) * 0.02
    for name in ("normal_", "uniform_"):
        def quick(tensor, *args, slow=getattr(torch.Tensor, name), **kwargs):
            if tensor.device.type != "cpu" or tensor.numel() < 1 << 16 or not tensor.is_contiguous():
                return slow(tensor, *args, **kwargs)
            with torch.no_grad():
                flat = tensor.view(-1)
                for at in range(0, flat.numel(), len(piece)):
                    flat[at:at + len(piece)].copy_(piece[:min(len(piece), flat.numel() - at)])
            return tensor
        setattr(torch.Tensor, name, quick)
