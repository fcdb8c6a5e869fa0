class Missing:
    pass


CIFAR10 = CIFAR100 = MNIST = KMNIST = FashionMNIST = ImageFolder = Missing
