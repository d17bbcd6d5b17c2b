"""Whisper with LoRA: the encoder frozen and checkpointed, fp16 with a scaler, gradients summed over three batches and a last sum of two, words
written between."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import WhisperConfig, WhisperForConditionalGeneration
torch.manual_seed(0)
model = WhisperForConditionalGeneration(WhisperConfig(d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6, decoder_attention_heads=6,
    encoder_ffn_dim=1536, decoder_ffn_dim=1536, vocab_size=51865, suppress_tokens=None, begin_suppress_tokens=None))
model.generation_config.forced_decoder_ids = None
model.freeze_encoder()
model = get_peft_model(model, LoraConfig(r=24, lora_alpha=48, target_modules=["q_proj", "k_proj", "v_proj", "fc1"], lora_dropout=0.05)).cuda()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
scaler = torch.amp.GradScaler("cuda", init_scale=1024)
batches = [(torch.randn(6 if i < 7 else 2, 80, 3000), torch.randint(0, 50000, (6 if i < 7 else 2, 37 + 23 * (i % 3)))) for i in range(8)]
for epoch in range(2):
    for i, (sound, words) in enumerate(batches):
        with torch.autocast("cuda", torch.float16):
            loss = model(input_features=sound.cuda(), labels=words.cuda()).loss / (3 if i < 6 else 2)
        scaler.scale(loss).backward()
        if i % 3 == 2 or i == 7:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad(), torch.autocast("cuda", torch.float16):
        print(model.generate(input_features=batches[0][0].cuda(), max_new_tokens=20, do_sample=False).shape)
    model.train()
