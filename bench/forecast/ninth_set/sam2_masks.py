"""SAM 2: Hiera frozen, the prompts' encoder and the mask decoder learn masks by focal and dice losses, 512 x 512, autocast in bf16."""
import torch
import torch.nn.functional as F
from transformers import Sam2Config, Sam2Model, Sam2HieraDetConfig, Sam2VisionConfig, Sam2PromptEncoderConfig, Sam2MaskDecoderConfig

torch.manual_seed(0)
back = Sam2HieraDetConfig(image_size=[512, 512])
vision = Sam2VisionConfig(backbone_config=back, backbone_feature_sizes=[[128, 128], [64, 64], [32, 32]])
model = Sam2Model(Sam2Config(vision_config=vision, prompt_encoder_config=Sam2PromptEncoderConfig(image_size=512), mask_decoder_config=Sam2MaskDecoderConfig())).cuda()
for n, p in model.named_parameters():
    p.requires_grad_(not n.startswith("vision_encoder"))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for step in range(6):
    pixels = torch.randn(6, 3, 512, 512, device="cuda")
    points = torch.rand(6, 2, 3, 2, device="cuda") * 512
    marks = torch.ones(6, 2, 3, dtype=torch.int, device="cuda")
    truth = (torch.rand(6, 2, 128, 128, device="cuda") > 0.5).float()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(pixel_values=pixels, input_points=points, input_labels=marks, multimask_output=False)
    masks = out.pred_masks[:, :, 0].float()
    bce = F.binary_cross_entropy_with_logits(masks, truth, reduction="none")
    p = masks.sigmoid()
    focal = ((1 - (p * truth + (1 - p) * (1 - truth))) ** 2 * bce).mean()
    dice = 1 - (2 * (p * truth).sum((-1, -2)) + 1) / ((p + truth).sum((-1, -2)) + 1)
    loss = 20 * focal + dice.mean() + (out.iou_scores.float() ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
