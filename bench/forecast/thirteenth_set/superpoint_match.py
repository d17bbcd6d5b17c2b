"""SuperPoint and LightGlue: corners of pairs of pictures with their descriptors, suppressed and cut to 1024, then matched layer by layer until sure; inference."""
import torch
from transformers import LightGlueConfig, LightGlueForKeypointMatching, SuperPointConfig

torch.manual_seed(0)
config = LightGlueConfig(keypoint_detector_config=SuperPointConfig(max_keypoints=1024, keypoint_threshold=0.003), descriptor_dim=256, num_hidden_layers=9, num_attention_heads=4, depth_confidence=0.95, width_confidence=0.99)
model = LightGlueForKeypointMatching(config).cuda().eval()
with torch.inference_mode():
    for h, w in ((480, 640), (480, 640), (768, 1024)):
        out = model(torch.rand(4, 2, 3, h, w, device="cuda"))
        print(out.matches.shape, (out.matches > -1).sum().item())
