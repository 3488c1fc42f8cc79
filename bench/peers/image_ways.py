"""The ways of PyTorch and torchvision to do the work "images" of bench/peers/compare-device: a window of each image is
cut, perhaps flipped, normalized by channel and moved to the device with the channels first, as bfloat16."""
import importlib.metadata

import numpy
import torch

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def torchvision_version():
    """Returns the version of torchvision, or "not installed"."""
    try:
        return importlib.metadata.version("torchvision")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


class Images:
    def __init__(self, source, crop, device, gpu):
        random = numpy.random.default_rng(5)
        count, height, width, _ = source.shape
        self.source, self.crop, self.device, self.gpu = source, crop, device, gpu
        self.top = random.integers(0, height - crop + 1, count)
        self.left = random.integers(0, width - crop + 1, count)
        self.flip = random.integers(0, 2, count).astype(bool)
        self.cut_buffer = torch.empty((count, crop, crop, 3), dtype=torch.uint8, pin_memory=gpu)
        self.whole_buffer = torch.empty(source.shape, dtype=torch.uint8, pin_memory=gpu)
        self.scale = (1 / (255 * torch.tensor(STD))).view(3, 1, 1).to(device)
        self.offset = (-torch.tensor(MEAN) / torch.tensor(STD)).view(3, 1, 1).to(device)
        self.compiled = None

    def cut(self):
        """Cuts the windows on the host into a pinned buffer."""
        crop = self.crop
        for i, (top, left, flip) in enumerate(zip(self.top, self.left, self.flip)):
            window = self.source[i, top:top + crop, left:left + crop]
            self.cut_buffer[i].copy_(window.flip(1) if flip else window)
        return self.cut_buffer

    def wanted(self):
        scale, offset = self.scale.cpu(), self.offset.cpu()
        return [self.cut().permute(0, 3, 1, 2).float() * scale + offset]

    def normalize(self, images):
        return images.permute(0, 3, 1, 2).float().mul_(self.scale).add_(self.offset).to(
            torch.bfloat16, memory_format=torch.contiguous_format)

    def send(self, images):
        return images.to(self.device, non_blocking=True)

    def indices(self):
        """Returns the rows and columns of the windows, as tensors on the device."""
        step = numpy.arange(self.crop)
        rows = self.top[:, None] + step
        columns = self.left[:, None] + numpy.where(self.flip[:, None], self.crop - 1 - step, step)
        return self.send(torch.from_numpy(rows)), self.send(torch.from_numpy(columns))

    def gather(self, whole, rows, columns):
        first = torch.arange(len(whole), device=whole.device)[:, None, None]
        return whole[first, rows[:, :, None], columns[:, None, :]]

    def gather_and_normalize(self, whole, rows, columns):
        picked = self.gather(whole, rows, columns).permute(0, 3, 1, 2).float()
        return (picked * self.scale + self.offset).to(torch.bfloat16, memory_format=torch.contiguous_format)

    def whole(self):
        """Sends the whole images. An unpinned source is first copied into a pinned buffer."""
        if self.source.is_pinned():
            return self.send(self.source)
        return self.send(self.whole_buffer.copy_(self.source))

    def cut_on_host(self):
        return [self.normalize(self.send(self.cut()))]

    def gather_on_device(self):
        return [self.normalize(self.gather(self.whole(), *self.indices()))]

    def gather_compiled(self):
        if self.compiled is None:
            self.compiled = torch.compile(self.gather_and_normalize, dynamic=False)
        return [self.compiled(self.whole(), *self.indices())]

    def with_torchvision(self):
        """Crops and flips each image on the device, because a transform draws one window for a whole batch."""
        from torchvision.transforms import v2
        whole, crop, made = self.whole().permute(0, 3, 1, 2), self.crop, []
        for i, (top, left, flip) in enumerate(zip(self.top.tolist(), self.left.tolist(), self.flip)):
            window = v2.functional.crop(whole[i], top, left, crop, crop)
            made.append(v2.functional.horizontal_flip(window) if flip else window)
        floats = v2.functional.to_dtype(torch.stack(made), torch.float32, scale=True)
        return [v2.functional.normalize(floats, MEAN, STD).to(torch.bfloat16)]

    def ways(self):
        found = {"torch: crop on the host, to, normalize": self.cut_on_host,
                 "torch: whole, gather, normalize": self.gather_on_device}
        if self.gpu:
            found["torch.compile: whole, gather, normalize"] = self.gather_compiled
        if torchvision_version() != "not installed":
            found["torchvision v2: whole, crop each"] = self.with_torchvision
        return {name: (do, self.wanted) for name, do in found.items()}
