"""Constructors of timm, without their trained weights, on images of 64 pixels."""

source = "timm torchvision huggingface_hub safetensors pyyaml"
most_weights = 30_000_000


def cases():
    import timm

    return timm.list_models()


def make(name, device):
    import timm
    import torch

    with torch.device("meta"):
        weights = sum(p.numel() for p in timm.create_model(name, pretrained=False, num_classes=10).parameters())
    if weights > most_weights:
        raise ValueError(f"{weights >> 20} Mi weights are too many for a run of seconds")
    options = {"img_size": 64} if "vit" in name or "swin" in name else {}
    model = timm.create_model(name, pretrained=False, num_classes=10, **options).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)

    def step(i):
        drawn = torch.Generator().manual_seed(i)
        x, y = torch.randn(4, 3, 64, 64, generator=drawn).to(device), torch.randint(0, 10, (4,), generator=drawn).to(device)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return [model, optimizer], step
