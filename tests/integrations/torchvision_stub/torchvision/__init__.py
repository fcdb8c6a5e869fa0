"""What timm imports of torchvision where that is not installed: names only, nothing of it works."""
