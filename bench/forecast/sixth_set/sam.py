"""transformers' Segment Anything made small: its eyes frozen, the decoder of masks trained with boxes and points, focal and dice losses, low masks enlarged."""
import torch
import torch.nn.functional as F
from transformers import SamConfig, SamMaskDecoderConfig, SamModel, SamPromptEncoderConfig, SamVisionConfig
torch.manual_seed(0)
model = SamModel(SamConfig(vision_config=SamVisionConfig(hidden_size=288, num_hidden_layers=4, num_attention_heads=6, image_size=512, window_size=7, global_attn_indexes=[3], output_channels=128, mlp_dim=1000,
                                                         num_pos_feats=64),
                           prompt_encoder_config=SamPromptEncoderConfig(hidden_size=128, image_size=512), mask_decoder_config=SamMaskDecoderConfig(hidden_size=128, mlp_dim=700, iou_head_hidden_dim=128))).cuda()
for name, p in model.named_parameters():
    p.requires_grad_(not name.startswith(("vision_encoder", "prompt_encoder")))
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-4)
for step in range(4):
    pictures = torch.randn(3, 3, 512, 512).cuda()
    goal = (torch.rand(3, 1, 301, 301) > 0.7).float().cuda()
    with torch.autocast("cuda", torch.bfloat16):
        if step % 2:
            out = model(pixel_values=pictures, input_boxes=torch.tensor([[[20.0, 30, 300, 290]]]).expand(3, -1, -1).cuda(), multimask_output=False)
        else:
            out = model(pixel_values=pictures, input_points=torch.rand(3, 1, 5, 2).cuda() * 512, input_labels=torch.ones(3, 1, 5, dtype=torch.int).cuda(), multimask_output=False)
    masks = F.interpolate(out.pred_masks[:, 0].float(), size=(301, 301), mode="bilinear", align_corners=False)
    p = masks.sigmoid()
    focal = (F.binary_cross_entropy_with_logits(masks, goal, reduction="none") * (goal * (1 - p) + (1 - goal) * p) ** 2).mean()
    dice = 1 - (2 * (p * goal).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + goal.sum((1, 2, 3)) + 1)
    loss = 20 * focal + dice.mean() + F.mse_loss(out.iou_scores.flatten().float(), dice.detach())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
